"""hexport's options in the words of ExecuTorch's compiler."""

from __future__ import annotations

from typing import Any

from hexport.executorch.lowering.inside.stack import stack
from hexport.executorch.lowering.options import Compiling, OpPackage
from hexport.executorch.lowering.requests import QuantizeRequest

_PROFILES = {"off": 0, "detailed": 2, "optrace": 3}
_PLATFORMS = {"x86_64": "X86_64", "aarch64-android": "AARCH64_ANDROID"}


def compile_spec(request: QuantizeRequest, options: Compiling, saver: str, *, in_float: bool) -> list[Any]:
    """What the partitioner and the compiler are given. ``in_float``: the program has float parts."""
    known = stack()
    backend = known.tools.generate_htp_compiler_spec(
        use_fp16=in_float,
        use_dlbc=options.dlbc,
        use_multi_contexts=options.multi_contexts,
        use_weight_sharing=options.weight_sharing,
        use_slc_allocator=options.slc_allocator,
        htp_performance_mode=_performance(options.performance),
    )
    # The helper has no words for these three; its record has.
    backend.htp_options.use_conv_hmx = options.conv_hmx
    backend.htp_options.use_fold_relu = options.fold_relu
    if options.signed_pd:
        backend.htp_options.pd_session = known.schema.QnnExecuTorchHtpPdSession.kHtpSignedPd
    spec: list[Any] = known.tools.generate_qnn_executorch_compiler_spec(
        soc_model=getattr(known.schema.QcomChipset, request.chip),
        backend_options=backend,
        debug=options.debug,
        saver=options.saver,
        online_prepare=options.online_prepare,
        dump_intermediate_outputs=options.dump_intermediates,
        profile_level=_PROFILES[options.profile],
        shared_buffer=options.shared_buffer,
        op_package_options=_op_packages(options.op_packages),
        use_mha2sha=options.mha2sha,
    )
    if options.saver:
        _set_saver_folder(spec, saver)
    return spec


def _performance(name: str) -> Any:
    words = "".join(word.capitalize() for word in name.split("-"))
    return getattr(stack().schema.QnnExecuTorchHtpPerformanceMode, f"kHtp{words}")


def _op_packages(packages: tuple[OpPackage, ...]) -> Any:
    schema = stack().schema
    found = schema.QnnExecuTorchOpPackageOptions()
    for package in packages:
        found.op_package_infos.append(
            schema.QnnExecuTorchOpPackageInfo(
                op_package_name=package.name,
                op_package_path=package.path,
                interface_provider=package.interface_provider,
                target=getattr(schema.QnnExecuTorchOpPackageTarget, package.target.upper()),
                custom_op_name=package.custom_op,
                qnn_op_type_name=package.qnn_op,
                platform=getattr(schema.QnnExecuTorchOpPackagePlatform, _PLATFORMS[package.platform]),
            )
        )
    return found


def _set_saver_folder(spec: list[Any], folder: str) -> None:
    """The helper writes the current folder."""
    serialize = stack().serialize
    options = serialize.flatbuffer_to_option(spec[0].value)
    options.saver_output_dir = folder
    spec[0].value = serialize.option_to_flatbuffer(options)
