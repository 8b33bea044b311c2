"""Where DTensors hold a plan's parameters; processes that train so are in tests/runtime."""

from __future__ import annotations

import pytest

import vgraph
from tests.partition.small_models import model_and_batch
from vgraph.api.dense.dtensor.layout import DTensorLayout, _held, layout_of
from vgraph.api.dense.dtensor.placements import in_blocks
from vgraph.api.dense.parallel import Plan
from vgraph.ir.sharding import Replicate, Split


def as_planned(plan: Plan) -> DTensorLayout:
    """As if no other plan could take its place."""
    return layout_of(_held("", plan.step, plan.sharding, plan.options), plan.options)


def test_the_cut_of_an_inner_factor_is_held_in_blocks_and_told() -> None:
    model, batch = model_and_batch("lstm")
    plan = vgraph.parallelize(model, batch, 2)
    layout = as_planned(plan)
    assert layout.name == ""
    assert set(layout.placements) == set(dict(model.named_parameters()))
    assert str(layout.planned["lstm.weight_ih_l0"][0]).startswith("S0/4")
    assert layout.placements["lstm.weight_ih_l0"] == (Split(0),)
    assert layout.communicated_bytes > layout.planned_bytes == plan.communicated_bytes
    assert "lstm.weight_ih_l0: the plan has S0/4" in str(layout)
    blocks = plan.dtensor_layout()  # another plan takes the place of one that DTensors cannot hold
    assert blocks.name == "parameters in blocks"
    assert not blocks.planned
    assert blocks.communicated_bytes == blocks.planned_bytes < layout.communicated_bytes
    assert str(blocks).startswith("parameters in blocks in place of the plan")


def test_a_named_plan_takes_the_place_where_it_moves_less_than_one_with_parameters_in_blocks() -> None:
    plan = vgraph.parallelize(*model_and_batch("attention"), 4)
    layout = plan.dtensor_layout()
    assert layout.name == "data parallel"
    assert layout.communicated_bytes < as_planned(plan).communicated_bytes


@pytest.mark.parametrize(("name", "workers"), [("mlp", 4), ("attention", 2)])
def test_what_dtensors_can_hold_moves_what_the_plan_moves(name: str, workers: int) -> None:
    plan = vgraph.parallelize(*model_and_batch(name), workers)
    layout = plan.dtensor_layout()
    assert not layout.planned
    assert layout.communicated_bytes == layout.planned_bytes == plan.communicated_bytes


def test_blocks_are_of_equal_size() -> None:
    placements = (Split(0), Split(0), Split(1, outer=3))
    assert in_blocks((4, 6), placements, (2, 2, 2)) == (Split(0), Split(0), Split(1))
    assert in_blocks((6, 5), placements, (2, 2, 2)) == (Split(0), Replicate(), Replicate())
