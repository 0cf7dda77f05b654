"""A workbench for a model whose weights stay in files, because they are too large to copy at every step."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from hexport.preparation.workbench import Workbench


class LargeBench(Workbench):
    """The data files lie in the bench's folder, and every candidate is saved beside them."""

    def try_change(self, name: str, change: Callable[[ir.Model], ir.Model]) -> bool:
        """The same; but a library that goes by protobuf loses where the data is, and it is told again."""

        def told(model: ir.Model) -> ir.Model:
            changed = change(model)
            ir.external_data.set_base_dir(changed.graph, self.folder)
            return changed

        return super().try_change(name, told)
