"""LoRA operators for vLLM's CPU build: one matrix product per adapter, and base-model rows left alone.

The stock operators index `weights[-1]` for rows without an adapter, so a base request that shares a batch with LoRA
requests silently gets the adapter of the last slot (vLLM pull requests 48421 and 49656). They also gather the whole
A and B per token. On a GPU the Triton kernels do both properly: this module must not be applied there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from workers.probe.private_names import CPU_MODULE

Rows = slice | Tensor
Groups = list[tuple[int, Rows]]


def group_rows(slot_of_row: Tensor) -> Groups:
    """Rows by slot, `-1` (base model) left out. Neighbouring rows become a slice, which needs no copy."""
    groups: Groups = []
    for slot in torch.unique(slot_of_row).tolist():
        if slot < 0:
            continue
        rows = (slot_of_row == slot).nonzero().squeeze(1)
        first, last = int(rows[0]), int(rows[-1])
        groups.append((slot, slice(first, last + 1) if last - first + 1 == len(rows) else rows))
    return groups


class _NonZero:
    """Remembers which slots of which weight hold anything: adapters rarely touch every module of a layer."""

    def __init__(self) -> None:
        self._layout: tuple[int | None, ...] = ()
        self._known: dict[tuple[int, int], bool] = {}

    def forget_if_moved(self, layout: tuple[int | None, ...]) -> None:
        """Slots changed owners, so what was known about them no longer holds (adapter ids are never reused)."""
        if layout != self._layout:
            self._layout = layout
            self._known.clear()

    def pick(self, groups: Groups, weights: Tensor) -> Iterator[tuple[Tensor, Rows]]:
        """The weight and rows of every group whose weight is not all zero."""
        for slot, rows in groups:
            key = (weights.data_ptr(), slot)
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = bool(weights[slot].any())
            if known:
                yield weights[slot], rows


_non_zero = _NonZero()


def _flat(weights: Tensor) -> Tensor:
    return weights.squeeze(1) if weights.dim() == 4 else weights


def _shrink(groups: Groups, x: Tensor, weights: Tensor, out: Tensor, scale: float) -> None:
    flat = _flat(weights)
    width = flat.shape[1]
    out[:, :width] = 0
    for weight, rows in _non_zero.pick(groups, flat):
        out[rows, :width] = (x[rows].to(out.dtype) @ weight.to(out.dtype).T) * scale


def _expand(groups: Groups, x: Tensor, weights: Tensor, out: Tensor, offset: int, size: int, add: bool) -> None:
    flat = _flat(weights)
    if not add:
        out[:, offset : offset + size] = 0
    for weight, rows in _non_zero.pick(groups, flat):
        out[rows, offset : offset + size] += x[rows].to(out.dtype) @ weight[:size].to(out.dtype).T


def _common_width(weights: Tensor, out: Tensor) -> int:
    """Adapter and model may pad their output differently (vocabularies)."""
    return min(_flat(weights).shape[1], out.shape[1])


def _bgmv_shrink(x: Tensor, weights: Tensor, out: Tensor, slot_of_row: Tensor, scaling: float = 1.0) -> None:
    _shrink(group_rows(slot_of_row), x, weights, out, scaling)


def _bgmv_expand(x: Tensor, weights: Tensor, out: Tensor, slot_of_row: Tensor, add_inputs: bool = True) -> None:
    _expand(group_rows(slot_of_row), x, weights, out, 0, _common_width(weights, out), add_inputs)


def _bgmv_expand_slice(
    x: Tensor, weights: Tensor, out: Tensor, slot_of_row: Tensor, offset: int, size: int, add_inputs: bool = True
) -> None:
    _expand(group_rows(slot_of_row), x, weights, out, offset, size, add_inputs)


def _groups(wrapper: Any) -> Groups:
    """This step's groups; computed here only when the patch came after vLLM had last set its metadata."""
    groups: Groups | None = getattr(wrapper, "lorry_groups", None)
    if groups is None:
        groups = wrapper.lorry_groups = group_rows(wrapper.token_lora_indices)
    return groups


def _shrink_prefill(wrapper: Any, y: Tensor, x: Tensor, weights: Tensor, scale: float) -> None:
    _shrink(_groups(wrapper), x, weights, y, scale)


def _expand_prefill(wrapper: Any, y: Tensor, x: Tensor, weights: Tensor, add_inputs: bool) -> None:
    _expand(_groups(wrapper), x, weights, y, 0, _common_width(weights, y), add_inputs)


def _expand_slice_prefill(
    wrapper: Any, y: Tensor, x: Tensor, weights: Tensor, y_offset: int, y_slice_size: int, add_inputs: bool
) -> None:
    _expand(_groups(wrapper), x, weights, y, y_offset, y_slice_size, add_inputs)


def _grouping(update_metadata: Callable[..., None]) -> Callable[..., None]:
    """Group the rows once per step instead of once per operator call: a step makes hundreds of them."""

    def update(wrapper: Any, mapping: Any, lora_index_to_id: list[int | None], *args: Any, **kwargs: Any) -> None:
        update_metadata(wrapper, mapping, lora_index_to_id, *args, **kwargs)
        wrapper.lorry_groups = group_rows(wrapper.token_lora_indices)
        _non_zero.forget_if_moved(tuple(lora_index_to_id))

    return update


def patch() -> None:
    """Replace the stock operators in this process. Safe to call twice."""
    module: Any = import_module(CPU_MODULE)
    wrapper = module.PunicaWrapperCPU
    if wrapper._shrink_prefill is _shrink_prefill:
        return
    module.bgmv_shrink, module.bgmv_expand = _bgmv_shrink, _bgmv_expand
    module.bgmv_expand_slice = _bgmv_expand_slice
    wrapper.update_metadata = _grouping(wrapper.update_metadata)
    wrapper._shrink_prefill = _shrink_prefill
    wrapper._expand_prefill = _expand_prefill
    wrapper._expand_slice_prefill = _expand_slice_prefill
