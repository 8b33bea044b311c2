"""DTensors: tensors on a device mesh as a plan divides them, and the mesh as the workers of the plan.

Takes: a DeviceMesh, whole tensors, placements. Gives: DTensors, a WorkerGroup. Runs once per model, and at every step.
Source: PyTorch, ``torch.distributed.tensor``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor import Replicate as Whole
from torch.distributed.tensor.placement_types import Placement as MeshPlacement

from vgraph.errors import WorkerError
from vgraph.ir.sharding import Placement, Split
from vgraph.runtime.distributed.groups import Group, lost_workers
from vgraph.runtime.distributed.process_group import WorkerGroup, local_device

__all__ = ["DTensor", "DeviceMesh", "MeshWorkers"]


class MeshWorkers:
    """The workers of a plan as the devices of a mesh, in its order; every process of the mesh makes one.

    A mesh of one dim is folded to one dim a step of the plan; a mesh of several, of which the plan has one step, takes
    that step's cut in every dim. Where the mesh has a multiple of the plan's workers, its first dim counts replicas of
    the plan: parameters are whole along it, and gradients are averaged.

    Raises:
        WorkerError: the mesh is not of as many devices, or of dims that do not fit the steps of the plan.
    """

    def __init__(self, mesh: DeviceMesh, axes: Sequence[int]) -> None:
        has_replicas = _check(mesh, axes)
        outer = tuple(mesh.shape[:1]) if has_replicas else ()
        inner = mesh.ndim - len(outer)
        is_folded = inner == 1 and len(axes) > 1
        self.mesh = DeviceMesh(mesh.device_type, mesh.mesh.reshape((*outer, *axes))) if is_folded else mesh
        self.repeats = inner if len(axes) == 1 else 1  # dims of the mesh for each step
        every = [one.flatten().tolist() for one in (mesh.mesh if outer else [mesh.mesh])]
        replica, ranks = next((i, ranks) for i, ranks in enumerate(every) if dist.get_rank() in ranks)
        device, peers = local_device(mesh.device_type), Group(mesh.get_group(0)) if outer else None
        group = _group_of(mesh, ranks, len(outer))
        self.group = WorkerGroup(ranks.index(dist.get_rank()), group, peers, device, is_first=replica == 0)

    def placements(self, placements: Sequence[Placement]) -> list[MeshPlacement]:
        """Blocks and whole copies in DTensor's words."""
        each = [Shard(p.dim) if isinstance(p, Split) else Whole() for p in placements]
        found: list[MeshPlacement] = [Whole()] * self.group.has_replicas
        found += [p for p in each for _ in range(self.repeats)]
        return found + [Whole()] * (self.mesh.ndim - len(found))

    def distribute(self, tensor: Tensor, placements: Sequence[Placement]) -> DTensor:
        """A whole tensor, of which the first process's numbers count."""
        return distribute_tensor(tensor, self.mesh, self.placements(placements))

    def joined(self, part: Tensor, shape: Sequence[int], placements: Sequence[Placement]) -> DTensor:
        """The DTensor of which this process has this part."""
        whole = torch.empty(tuple(shape), device="meta")
        return DTensor.from_local(
            part, self.mesh, self.placements(placements), run_check=False, shape=whole.shape, stride=whole.stride()
        )

    def check_equal(self, what: str, number: int) -> None:
        """Refuses to go on where processes of the mesh do not hold the same ``what``, of which ``number`` is a digest.

        Raises:
            WorkerError: some process has another number.
        """
        mine = torch.tensor([number, -number], device=self.group.device)
        if self.group.largest(mine).tolist() != [number, -number]:
            raise WorkerError(
                f"the processes of the mesh have made different {what}",
                cure="call with the same model, shapes and arguments in every process",
            )


def _check(mesh: DeviceMesh, axes: Sequence[int]) -> bool:
    """Whether the mesh has replicas; WorkerError: it does not fit the plan."""
    count, shape = math.prod(axes), tuple(mesh.shape)
    steps = " x ".join(map(str, axes)) or "1"
    make = f"init_device_mesh({mesh.device_type!r}, {tuple(axes) or (1,)})"
    has_replicas = mesh.ndim > 1 and mesh.size() > count and math.prod(shape[1:]) == count
    if mesh.size() != count and not has_replicas:
        more = f"; for replicas of the plan, init_device_mesh({mesh.device_type!r}, ({mesh.size() // count}, {count}))"
        raise WorkerError(
            f"the mesh has {mesh.size()} devices and the plan is for {count} workers",
            cure=f"pass {make}, or make a plan with num_workers={mesh.size()}" + more * (mesh.size() % count == 0),
        )
    inner = shape[1:] if has_replicas else shape
    if len(inner) > 1 and len(axes) > 1 and inner != tuple(axes):
        raise WorkerError(
            f"the mesh has the shape {shape} and the plan divides among {steps} workers, step by step",
            cure=f"pass {make}",
        )
    if len(inner) == 1 and len(axes) > 1 and mesh.size() != dist.get_world_size():
        raise WorkerError(
            f"a part of all processes cannot be folded to {steps}, as the plan divides",
            cure=f"pass a mesh of the shape {tuple(axes)}, a slice of one that names all processes",
        )
    ranks = mesh.mesh.flatten().tolist()
    if ranks != sorted(ranks):
        raise WorkerError(f"the mesh has the ranks {ranks}, not in their order", cure=f"pass {make}")
    return has_replicas


def _group_of(mesh: DeviceMesh, ranks: Sequence[int], first: int) -> Group | None:
    """The group of these ranks, those of the dims from ``first`` on; None: torch's default group."""
    with lost_workers():
        if len(ranks) == dist.get_world_size():
            return None
        is_one_dim = mesh.ndim == first + 1
        return Group(mesh.get_group(first) if is_one_dim else dist.new_group(ranks, use_local_synchronization=True))
