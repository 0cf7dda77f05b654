"""ONNX messages through plain protobuf, so that looking at a model needs no ``onnx`` package.

protobuf comes with onnxruntime; the messages are declared here in a private pool, so that they live
beside the ``onnx`` package in one process. Only the fields hexport looks at are declared: protobuf
keeps the others as they are, byte for byte, when a message is written again. Field numbers are those
of the ONNX standard (onnx.proto). Text is declared as bytes: the two are the same on the wire, and
a broken string must be our error, not protobuf's.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# message -> fields as "number name type"; * marks repeated ones.
_MESSAGES: dict[str, tuple[str, ...]] = {
    "ModelProto": (
        "1 ir_version int64",
        "2 producer_name bytes",
        "3 producer_version bytes",
        "7 graph GraphProto",
        "8 *opset_import OperatorSetIdProto",
        "14 *metadata_props StringStringEntryProto",
        "25 *functions FunctionProto",
    ),
    "OperatorSetIdProto": ("1 domain bytes", "2 version int64"),
    "StringStringEntryProto": ("1 key bytes", "2 value bytes"),
    "FunctionProto": (
        "1 name bytes",
        "4 *input bytes",
        "5 *output bytes",
        "7 *node NodeProto",
        "9 *opset_import OperatorSetIdProto",
        "10 domain bytes",
        "11 *attribute_proto AttributeProto",
        "13 overload bytes",
    ),
    "GraphProto": (
        "1 *node NodeProto",
        "2 name bytes",
        "5 *initializer TensorProto",
        "11 *input ValueInfoProto",
        "12 *output ValueInfoProto",
        "13 *value_info ValueInfoProto",
        "15 *sparse_initializer SparseTensorProto",
    ),
    "NodeProto": (
        "1 *input bytes",
        "2 *output bytes",
        "3 name bytes",
        "4 op_type bytes",
        "5 *attribute AttributeProto",
        "7 domain bytes",
        "8 overload bytes",
    ),
    "AttributeProto": (
        "1 name bytes",
        "2 f float",
        "3 i int64",
        "4 s bytes",
        "5 t TensorProto",
        "6 g GraphProto",
        "8 *ints int64",
        "10 *tensors TensorProto",
        "11 *graphs GraphProto",
        "20 type int32",
        "21 ref_attr_name bytes",
    ),
    "TensorProto": (
        "1 *dims int64",
        "2 data_type int32",
        "8 name bytes",
        "13 *external_data StringStringEntryProto",
        "14 data_location int32",
    ),
    "SparseTensorProto": ("1 values TensorProto", "2 indices TensorProto", "3 *dims int64"),
    "ValueInfoProto": ("1 name bytes", "2 type TypeProto"),
    # Only whether it is one of the others is looked at, so their contents stay bytes.
    "TypeProto": (
        "1 tensor_type TypeProto_Tensor",
        "4 sequence_type bytes",
        "5 map_type bytes",
        "8 sparse_tensor_type bytes",
        "9 optional_type bytes",
    ),
    "TypeProto_Tensor": ("1 elem_type int32", "2 shape TensorShapeProto"),
    "TensorShapeProto": ("1 *dim TensorShapeProto_Dimension",),
    "TensorShapeProto_Dimension": ("1 dim_value int64", "2 dim_param bytes"),
}

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "int64": _Field.TYPE_INT64,
    "int32": _Field.TYPE_INT32,
    "float": _Field.TYPE_FLOAT,
    "bytes": _Field.TYPE_BYTES,
}


@cache
def message_class(name: str) -> Any:
    """The protobuf class of one message, for example ``message_class("ModelProto")``."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"hexport.onnx.{name}"))


@cache
def _pool() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="hexport/onnx.proto", package="hexport.onnx", syntax="proto2"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for declaration in fields:
            number, field_name, kind = declaration.split()
            field = message.field.add(name=field_name.lstrip("*"), number=int(number))
            field.label = _Field.LABEL_REPEATED if field_name.startswith("*") else _Field.LABEL_OPTIONAL
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:
                field.type = _Field.TYPE_MESSAGE
                field.type_name = f".hexport.onnx.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool
