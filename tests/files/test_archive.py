"""Archives of torch.save, read as data: all that data need, nothing else, and no size that is not there."""

from __future__ import annotations

import io
import pickle
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vgraph.errors import DataError
from vgraph.files import read_archive

BYTES = torch.arange(24, dtype=torch.uint8)


def things() -> dict[str, Any]:
    x = torch.rand(4, 5)
    z = torch.randn(3, dtype=torch.complex64)
    made: dict[str, Any] = {str(dtype): x.to(dtype) for dtype in (torch.float64, torch.float16, torch.bfloat16)}
    made |= {str(dtype): BYTES.to(dtype) for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint16)}
    made |= {"views": (x.t(), x[1], x[:1].expand(7, 5), x[:, ::2]), "bool": x > 0.5, "number": torch.tensor(3.0)}
    made |= {"conjugate": z.conj(), "negative": z.clone().conj().imag, "empty": torch.empty(0, 3), "twice": [x, x]}
    made |= {"coo": x.relu().to_sparse(), "parameter": nn.Parameter(x), "state": nn.BatchNorm1d(3).state_dict()}
    made |= {"numbers": [1, -5, 2**70, 1.5, 1 + 2j, True, None], "set": {1, 2}, "bytes": b"a\xff", "shape": x.shape}
    return made | {"dtype": torch.float16, "device": torch.device("cuda:1")}


def same(one: Any, two: Any) -> None:
    assert type(one) is type(two)
    if isinstance(one, Tensor):
        assert (one.dtype, one.shape, one.layout, one.requires_grad) == (
            two.dtype,
            two.shape,
            two.layout,
            two.requires_grad,
        )
        assert one.detach().to_dense().tolist() == two.detach().to_dense().tolist()
    elif isinstance(one, dict):
        assert list(one) == list(two)
        for key in one:
            same(one[key], two[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(two)
        for item, other in zip(one, two, strict=True):
            same(item, other)
    else:
        assert one == two


def test_what_torch_writes_is_read_as_torch_reads_it(tmp_path: Path) -> None:
    torch.save(things(), tmp_path / "a.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of sparse tensors, and of types whose storages have no name
        known = torch.load(tmp_path / "a.pt", weights_only=True, map_location="cpu")
    same(read_archive(tmp_path / "a.pt"), known)
    one, two = read_archive(tmp_path / "a.pt")["twice"]
    assert one.data_ptr() == two.data_ptr()


def changed(path: Path, change: Callable[[str, bytes], bytes]) -> Path:
    """The archive of a tensor of six floats, one of its records changed, with checksums that fit."""
    made = io.BytesIO()
    torch.save({"x": torch.arange(6.0).reshape(2, 3)}, made)
    with zipfile.ZipFile(made) as old, zipfile.ZipFile(path, "w") as new:
        for info in old.infolist():
            new.writestr(info.filename, change(info.filename, old.read(info)))
    return path


@pytest.mark.parametrize(
    ("old", "new", "fact"),
    [
        (b"K\x02K\x03\x86", b"K\x02K\x04\x86", r"reaches beyond the 6 elements"),
        (b"K\x06tq", b"K\x07tq", r"holds 6 elements, not 7"),
        (b"K\x06tq", b"J\xff\xff\xff\xfftq", r"holds 6 elements, not -1"),
        (b"K\x03K\x01\x86", b"J\x00\x00\x00\x40K\x01\x86", r"reaches beyond"),
        (b"K\x03K\x01\x86", b"J\xff\xff\xff\xffK\x01\x86", r"has offset, size and stride"),
        (b"ctorch._utils\n_rebuild_tensor_v2", b"cbuiltins\neval", r"names 'builtins eval', which no data need"),
        (b"ctorch._utils\n_rebuild_tensor_v2", b"cposix\nsystem", r"names 'posix system'"),
        (b"FloatStorage", b"RealStorage", r"names 'torch RealStorage'"),
        (b"Rq", b"oq", r"OBJ at byte \d+ is no part of data"),
    ],
)
def test_what_a_program_may_not_say(old: bytes, new: bytes, fact: str, tmp_path: Path) -> None:
    def change(name: str, record: bytes) -> bytes:
        assert not name.endswith("data.pkl") or old in record
        return record.replace(old, new, 1) if name.endswith("data.pkl") else record

    path = changed(tmp_path / "a.pt", change)
    with pytest.raises(DataError, match=fact) as caught:
        read_archive(path)
    assert caught.value.line == str(path) and caught.value.cure


def test_records(tmp_path: Path) -> None:
    whole = changed(tmp_path / "a.pt", lambda _, record: record).read_bytes()
    assert read_archive(tmp_path / "a.pt")["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    cases = {
        "reaches beyond|elements, not 6": lambda n, r: r[:20] if "/data/" in n else r,
        "are not little-endian": lambda n, r: b"big" if n.endswith("byteorder") else r,
    }
    for fact, change in cases.items():
        with pytest.raises(DataError, match=fact):
            read_archive(changed(tmp_path / "b.pt", change))
    place = whole.index(struct.pack("<f", 5.0))
    (tmp_path / "b.pt").write_bytes(whole[:place] + b"\1" + whole[place + 1 :])
    with pytest.raises(DataError, match=r"the checksum of .* does not fit"):
        read_archive(tmp_path / "b.pt")
    (tmp_path / "b.pt").write_bytes(pickle.dumps([1]))
    with pytest.raises(DataError, match="not a zip file"):
        read_archive(tmp_path / "b.pt")
    with zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", bytes(1000))
    with pytest.raises(DataError, match="its records are compressed"):
        read_archive(tmp_path / "b.pt")
    with pytest.raises(DataError, match="cannot read the data file: No such file"):
        read_archive(tmp_path / "none.pt")


def test_a_byte_that_is_no_bool_counts_once(tmp_path: Path) -> None:
    made = io.BytesIO()
    torch.save(torch.tensor([True, False, True]), made)
    with zipfile.ZipFile(made) as old, zipfile.ZipFile(tmp_path / "a.pt", "w") as new:
        for info in old.infolist():
            new.writestr(info.filename, b"\x07\x00\x01" if "/data/" in info.filename else old.read(info))
    found = read_archive(tmp_path / "a.pt")
    assert (int(found.sum()), found.nonzero().flatten().tolist()) == (2, [0, 2])
