"""Small files of graphs that DGL 1.1.3 wrote, compressed; the unused bytes of their headers are blanked."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping

import numpy as np

DGL_FILES = {
    "plain": (
        "eNqzX7jF7YO/3l0mBgiA0YwMo2AUjIJRMApGwSgYBaNgFIyCUTAKRsEoGC4gUgC1vw+jK+0Xbpn2wSHuLgMDFgUOjPCBAgE0eZj4"
        "fi8l033zI+7uz2JR+Bdvc1f9431Wocs5d9EtItUeBhL1w/gcaPrJ1QeXUF+45duHBD2wh0CYHUoPOw+DPHL5f+JdZiifmUgDYeok"
        "cHiEiUxz0PUT60FMwIjmI0YcdAY+o5kUEE7kQTG+wR7ZYnS6HJehTGj+hvnTgEA4wtSzQGlWHOri/TBEXNFzMaxYgIkDAOu5YYI="
    ),
    "typed": (
        "eNqzX7jF7YO/3l0mBghAp0fBKBgFo2AUjIJRMApGwSgYBaNgFIyCUTD0gYAAKn+/l5LpvvkRd/dnsSj8i7e5q/7xPqvQ5RyM8QH7"
        "hVumfXCIuwvTx4hMOzAyMEP5EjjsJdYcmDoBNHkGMvWjq4MrUF+45duHBL27jFBJdiiNHhCMaAZQ6gBC+mF8DhI9jksfA8gjl/8n"
        "3oXFEDOFMcpIYcpA10+sBzEBsVFIrbTMSGFUMlIrKpmoFJVMVIpKUtM47uIB3WdMOIK+CpcVIA1MCowYBiKyY4M9KsaeGhlwOCAd"
        "xihFl0mDMQpGy9TRMnW0TB0tU0fLVOqVqRLodkMtTxFFDT4AtjQL2Q=="
    ),
    "rows": (
        "eNqzX7jF7YO/3l0mBgiA0YwMo2AUjIJRMApGwSgYBaNgFIyCUTAKRsEoGC5AQACVv99LyXTf/Ii7+7NYFP7F29xV/3ifVehyzl1G"
        "tHEB+4Vbpn1wiLvLgCYOph0Y4eMIaMYTrR/G50DTT64+uIT6wi3fPiRABjxAYjB62HkY5hFmKJ+ZSANZoHwFHB5BHykiNWAYSdTP"
        "gCsmmdH4DAT4MAvj/TBEXNEdB8sWMHEA+QVO3A=="
    ),
    "batch": (
        "eNqzX7jF7YO/3l0mBghAp0fBKBgFo2AUjIJRMApGwSgYBaNgFIyCUTD0wTQB1P4+I5ROsl+4ZdoHh7i7DGgSIJpJgZGBGcrngdJ/"
        "z9Ta15oL2v+6LG4PU5tIyBCYrRxQeskkc/uDCeX2+72UTPfNj7i7P4tF4V+8zV31j/dZhS7n3GVEMwef+QwOCPMF0HxNrH5GNPcx"
        "UKgPLqG+cMu3Dwl6YA+BMDuUHnYeBnnk8v/Eu2xQPhsxBgJTBguaR5igcqxAzEKGfpgZzFAzCHkIEzCi+QA9amBBX2qBz2xGDkYG"
        "9LBghAAc9sHMjffDEHEdzSfDLZ/AilVmIvMJegkKyyek6oPpJT9fMFOcL9D9TmamkEATgVVx+4QhNEweAJTJuow="
    ),
}


def dgl_bytes(name: str) -> bytes:
    """The file as DGL wrote it."""
    return zlib.decompress(base64.b64decode(DGL_FILES[name]))


def first_format() -> bytes:
    """Two graphs as DGL before 0.5 laid them out: by destination, with ids of edges, each where the header says."""
    one = (np.array([0, 0, 1, 3]), np.array([2, 0, 1]), np.array([1, 2, 0]))
    graphs = [
        b"".join(map(_array, one)) + _named({"n": np.arange(3.0)}) + _named({"w": np.array([[5], [6], [7]])}),
        b"".join(map(_array, (np.array([0, 1, 1]), np.array([1]), np.array([0])))) + _named({}) + _named({}),
    ]
    labels = _named({"y": np.array([4, 8])})
    first = 4096 + 8 * (1 + 3 * 3) + len(labels)
    starts = (first, first + len(graphs[0]))
    numbers = b"".join(struct.pack("<3Q", 2, *two) for two in (starts, (3, 2), (3, 1)))
    header = struct.pack("<3Q", 0xDD2E4FF046B4A13F, 1, 1).ljust(4096, bytes(1))
    return header + struct.pack("<Q", 2) + numbers + labels + b"".join(graphs)


def _named(arrays: Mapping[str, np.ndarray]) -> bytes:
    texts = (struct.pack("<Q", len(name)) + name.encode() + _array(one) for name, one in arrays.items())
    return struct.pack("<Q", len(arrays)) + b"".join(texts)


def _array(one: np.ndarray) -> bytes:
    kind = {"i": 0, "f": 2}[one.dtype.kind]
    head = struct.pack("<QQiiiBBH", 0xDD5E40F096B4A13F, 0, 1, 0, one.ndim, kind, 8 * one.itemsize, 1)
    return head + struct.pack(f"<{one.ndim}qq", *one.shape, one.nbytes) + one.tobytes()
