"""Sets of ``dgl.data``: how each is written and asked for, what is looked at, and what that is."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scipy import sparse

import vgraph
from tests.compat import dgl_archives as written

Case = tuple[str, dict[str, Any], Callable[[Path], None], Callable[[Any], object], object]


def ends(g: vgraph.Graph) -> list[tuple[int, int]]:
    return sorted(zip(*(side.tolist() for side in g.edges()), strict=True))


def of_one(*names: str) -> Callable[[Any], object]:
    """Nodes, edges, classes and features of the one graph, whatever the order of nodes."""

    def look(found: Any) -> object:
        g = found[0]
        features = [sorted(map(repr, g.ndata[name].tolist())) for name in names]
        assert len(found) == 1
        return g.num_nodes(), g.num_edges(), found.num_classes, *features

    return look


def carcinogenesis(*rows: str) -> str:
    base = "http://dl-learner.org/carcinogenesis#"
    kind = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
    return "".join(row.replace(" a ", f" <{kind}> ").replace("<:", f"<{base}") + " .\n" for row in rows)


def rdf_seen(found: Any) -> object:
    g, kind = found[0], found.predict_category
    masks = [g.nodes[kind].data[f"{part}_mask"].tolist() for part in ("train", "test")]
    types = sorted("|".join(etype) for etype in g.canonical_etypes if not etype[1].startswith("rev-"))
    return types, g.nodes[kind].data["labels"].tolist(), *masks, found.num_classes


MUTAG = carcinogenesis(
    '<:d1> <:charge> "-0.5"^^<x#double>',
    "<:d1> <:hasBond> <:bond7>",
    "<:d2> a <:Compound>",
    "<:d2> <:isMutagenic> <:t>",
)
AIFB = (
    '<http://www.aifb.uni-karlsruhe.de/Personen/v/id1> <http://swrc.ontoware.org/ontology#name> "A \\u00e9" .\n'
    "<http://www.aifb.uni-karlsruhe.de/Personen/v/id1> <http://swrc.ontoware.org/ontology#affiliation> "
    "<http://www.aifb.uni-karlsruhe.de/Forschungsgruppen/v/id2> .\n"
)
BGS = (
    "<http://data.bgs.ac.uk/id/Lexicon/NamedRockUnit/A> <http://data.bgs.ac.uk/ref/Lexicon/hasTheme> "
    "<http://data.bgs.ac.uk/id/Lexicon/Theme/B> .\n"
)
AM = (
    "<http://purl.org/collections/nl/am/proxy-1> <http://purl.org/collections/nl/am/maker> "
    "<http://purl.org/collections/nl/am/p-2> .\n"
)
DL = "http://dl-learner.org/carcinogenesis#"
CSR = {"feat": [repr([float(i == j) for j in range(5)]) for i in range(4)]}
CASES: list[Case] = [
    (
        "CoraBinary",
        {},
        lambda root: written.put(
            root / "cora_binary",
            graphs__txt="graph 0\n0 1\n2 1\ngraph 1\n1 0\n",
            labels__txt="graph 0\n0\n1\n1\ngraph 1\n1\n0\n",
            pmpds__pkl=pickle.dumps(
                [sparse.coo_matrix([[1.0, 0], [-1, -1], [0, 1]]), sparse.coo_matrix([[-1.0], [1]])]
            ),
        ),
        lambda d: [(ends(g), matrix.toarray().tolist(), y.tolist()) for g, matrix, y in [*d, d.collate_fn([*d])]],
        [
            ([(0, 1), (2, 1)], [[1, 0], [-1, -1], [0, 1]], [0, 1, 1]),
            ([(1, 0)], [[-1], [1]], [1, 0]),
            (
                [(0, 1), (2, 1), (4, 3)],
                [[1, 0, 0], [-1, -1, 0], [0, 1, 0], [0, 0, -1], [0, 0, 1]],
                [0, 1, 1, 1, 0],
            ),
        ],
    ),
    (
        "CoraGraphDataset",
        {},
        written.cora,
        lambda d: (
            ends(d[0])[:3],
            d[0].ndata["label"].tolist(),
            d[0].ndata["feat"].tolist(),
            d.num_classes,
            [d[0].ndata[f"{part}_mask"].nonzero()[:, 0].tolist() for part in ("train", "val", "test")],
        ),
        (
            [(0, 1), (0, 7), (1, 0)],
            [0, 1, 0, 1, 1, 0, 1, 1],
            [[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 0, 0], [0.5, 0.5, 0], [1, 0, 0], [0, 0, 1]],
            2,
            [[0, 1], [2, 3, 4, 5, 6, 7], [5, 6, 7]],
        ),
    ),
    ("CoraGraphDataset", {"reverse_edge": False, "reorder": True}, written.cora_zip, of_one(), (8, 8, 2)),
    (
        "RedditDataset",
        {},
        written.reddit,
        of_one("label", "train_mask"),
        (4, 8, 41, ["0", "1", "2", "3"], ["False", "False", "True", "True"]),
    ),
    ("YelpDataset", {}, written.saint("yelp"), of_one("label"), (4, 8, 100, [f"[{i}, 0]" for i in range(4)])),
    (
        "FlickrDataset",
        {"reorder": True},
        written.saint("flickr"),
        of_one("label", "test_mask"),
        (4, 8, 7, ["0", "1", "2", "3"], ["False", "False", "False", "True"]),
    ),
    *[
        (
            name,
            {},
            written.benchmark(file),
            of_one("label", "feat"),
            (4, 8, classes, ["0", "1", "2", "3"], sorted(CSR["feat"])),
        )
        for name, file, classes in (
            ("CoraFullDataset", "cora_full", 70),
            ("CoraFull", "cora_full", 70),
            ("CoauthorCSDataset", "coauthor_cs", 15),
            ("CoauthorPhysicsDataset", "coauthor_physics", 5),
            ("AmazonCoBuyComputerDataset", "amazon_co_buy_computer", 10),
            ("AmazonCoBuyPhotoDataset", "amazon_co_buy_photo", 8),
        )
    ],
    (
        "WikiCSDataset",
        {},
        written.wiki,
        of_one("train_mask", "test_mask"),
        (3, 4, 10, ["[False, False]", "[False, False]", "[True, True]"], ["False", "True", "True"]),
    ),
    *[
        (
            name,
            {},
            written.pages(name.removesuffix("Dataset").lower()),
            lambda d: (
                d[0].edges()[0].tolist(),
                d[0].ndata["train_mask"].shape,
                d.num_classes,
                d[0].ndata["feat"].tolist(),
            ),
            ([1, 1], (3, 10), 3, [[1, 0], [0, 1], [1, 1]]),
        )
        for name in ("ChameleonDataset", "SquirrelDataset", "CornellDataset", "TexasDataset", "WisconsinDataset")
    ],
    (
        "ActorDataset",
        {},
        written.pages("actor", ("2", "0,1", "1")),
        lambda d: (d[0].edges()[1].tolist(), d[0].ndata["feat"].tolist()),
        ([0, 2], [[0, 0, 1], [1, 1, 0], [0, 1, 0]]),
    ),
    (
        "FraudYelpDataset",
        {},
        written.fraud("yelp", "YelpChi.mat", ("net_rsr", "net_rtr", "net_rur")),
        lambda d: (
            d[0].etypes,
            d[0].num_edges("net_rsr"),
            d[0].ndata["label"].tolist(),
            int(d[0].ndata["train_mask"].sum()),
        ),
        (["net_rsr", "net_rtr", "net_rur"], 12, [0, 1, 0, 1, 0, 1], 4),
    ),
    (
        "FraudAmazonDataset",
        {},
        written.fraud("amazon", "Amazon.mat", ("net_upu", "net_usu", "net_uvu")),
        lambda d: (d[0].ntypes, d[0].ndata["feature"].shape, int(d[0].ndata["test_mask"].sum())),
        (["user"], (6, 6), 0),
    ),
    (
        "PPIDataset",
        {"mode": "valid"},
        written.ppi,
        lambda d: (len(d), [ends(g) for g in d], d[1].ndata["feat"].tolist(), d[0].ndata["label"].shape, d.num_labels),
        (2, [[(0, 1), (1, 0)]] * 2, [[4, 5], [6, 7]], (2, 121), 121),
    ),
    ("LegacyPPIDataset", {"mode": "valid"}, written.ppi, lambda d: d[0][1].tolist(), [[0, 1], [2, 3]]),
    (
        "CLUSTERDataset",
        {},
        written.stored("cluster", "CLUSTER_train.bin"),
        lambda d: (len(d), d[1].num_edges(), d.num_classes),
        (2, 2, 6),
    ),
    (
        "PATTERNDataset",
        {"mode": "test"},
        written.stored("pattern", "SBM_PATTERN_test.bin"),
        lambda d: (len(d), d[0].num_edges(), d.num_classes),
        (2, 1, 2),
    ),
    (
        "ZINCDataset",
        {},
        written.stored("zinc", "ZincDGL_train.bin"),
        lambda d: (d[1][0].num_edges(), float(d[1][1]), d.num_atom_types),
        (2, 2.0, 28),
    ),
    (
        "BA2MotifDataset",
        {},
        written.motifs,
        lambda d: (ends(d[1][0])[:2], int(d[1][1]), len(d)),
        ([(0, 1), (0, 2)], 1, 2),
    ),
    (
        "FakeNewsDataset",
        {"name": "politifact", "feature_name": "bert"},
        written.news,
        lambda d: ([ends(g) for g, _ in (d[0], d[1])], d.train_mask.tolist(), d.feature.shape, d.num_graphs),
        ([[(0, 1)], [(0, 1), (1, 0)]], [True, False], (4, 4), 2),
    ),
    (
        "LegacyTUDataset",
        {"name": "SMALL"},
        written.legacy_tu,
        lambda d: (
            d.data_mode,
            d.graph_labels.tolist(),
            d.statistics(),
            d[1][0].ndata["feat"].tolist(),
            list(d[0][0].edata),
        ),
        ("node_label", [0, 2], (3, 3, 3), [[1, 0, 0], [0, 0, 1], [1, 0, 0]], ["_ID"]),
    ),
    ("LegacyTUDataset", {"name": "SMALL", "max_allow_node": 2}, written.legacy_tu, len, 1),
    ("TUDataset", {"name": "SMALL"}, written.legacy_tu, lambda d: (d.num_classes, d[0][0].num_nodes()), (2, 2)),
    (
        "GINDataset",
        {"name": "MM", "self_loop": True},
        written.gin,
        lambda d: (ends(d[0][0]), d[0][0].ndata["attr"].tolist()),
        ([(0, 0), (0, 1), (1, 0), (1, 1)], [[1, 0], [0, 1]]),
    ),
    (
        "GINDataset",
        {"name": "TWICE"},
        written.gin_of_whole_tags,
        lambda d: (d[0][0].ndata["label"].tolist(), d[0][0].ndata["attr"].argmax(1).tolist(), d.dim_nfeats),
        ([0, 1, 2], [1, 2, 0], 3),  # the file's 2, 0, 1 are tags 0, 1, 2, each of which is looked up once more
    ),
    (
        "QM7bDataset",
        {},
        written.qm7b,
        lambda d: (ends(d[1][0]), d[1][0].edata["h"].tolist(), d[0][1].shape, d.num_tasks),
        ([(0, 0), (0, 1), (1, 0)], [[1], [2], [2]], (14,), 14),
    ),
    (
        "QM9Dataset",
        {"label_keys": ["mu"], "cutoff": 2.0},
        written.qm9,
        lambda d: (
            [ends(g) for g, _ in (d[0], d[1])],
            d[0][0].num_nodes(),
            d[1][1].tolist(),
            d[1][0].ndata["Z"].tolist(),
        ),
        ([[(0, 1), (1, 0)]] * 2, 3, [1.5], [8, 1]),
    ),
    (
        "QM9EdgeDataset",
        {"label_keys": ["gap"]},
        written.qm9_edge,
        lambda d: (ends(d[1][0]), d[1][1].tolist(), d[1][0].ndata["pos"].shape, d.num_tasks),
        ([(2, 0)], [23.0], (3, 3), 1),
    ),
    *[
        (
            name,
            {"reverse": name != "WN18Dataset"},
            written.knowledge(file),
            lambda d: (
                list(zip(*(side.tolist() for side in d[0].edges()), d[0].edata["etype"].tolist(), strict=True))[:4],
                d[0].edata["train_mask"][:4].tolist(),
                d[0].num_edges(),
                d.num_rels,
                d.num_nodes,
            ),
            (
                [(0, 1, 1), (2, 0, 1), (1, 2, 0), (0, 2, 0)],
                [True, False, True, False],
                4 if name == "WN18Dataset" else 8,
                2,
                3,
            ),
        )
        for name, file in (("FB15k237Dataset", "FB15k-237"), ("FB15kDataset", "FB15k"), ("WN18Dataset", "wn18"))
    ],
    (
        "SSTDataset",
        {"mode": "tiny"},
        written.sentences,
        lambda d: (
            ends(d[0]),
            [d[0].ndata[name].tolist() for name in "xy"],
            d[0].ndata["mask"].tolist(),
            len(d),
            d.vocab_size,
        ),
        ([(1, 0), (2, 0), (3, 2), (4, 2)], [[-1, 0, -1, -1, 1], [3, 2, 4, 2, 1]], [0, 1, 0, 1, 1], 2, 2),
    ),
    (
        "MUTAGDataset",
        {},
        written.rdf("mutag-hetero", MUTAG, (f"{DL}d1\t1\t1\n", f"{DL}d2\t2\t0\n{DL}d9\t3\t0\n")),
        rdf_seen,
        (
            ["d|22-rdf-syntax-ns#type|SCHEMA", "d|charge|_Literal", "d|hasBond|bond"],
            [0, 1],
            [True, False],
            [False, True],
            2,
        ),
    ),
    (
        "AIFBDataset",
        {},
        written.rdf("aifb-hetero", AIFB, ("http://www.aifb.uni-karlsruhe.de/Personen/v/id1\t1\tx\n", "")),
        rdf_seen,
        (["Personen|ontology#name|_Literal"], [0], [True], [False], 1),
    ),
    (
        "BGSDataset",
        {},
        written.rdf("bgs-hetero", BGS, ("1\thttp://data.bgs.ac.uk/id/Lexicon/NamedRockUnit/A\tx\n", "")),
        rdf_seen,
        (["Lexicon/NamedRockUnit|Lexicon/hasTheme|Lexicon/Theme"], [0], [True], [False], 1),
    ),
    (
        "AMDataset",
        {"insert_reverse": False},
        written.rdf("am-hetero", AM, ("", "http://purl.org/collections/nl/am/proxy-1\t1\tx\n")),
        rdf_seen,
        (["proxy|maker|p"], [0], [False], [True], 1),
    ),
    (
        "BitcoinOTCDataset",
        {},
        written.bitcoin,
        lambda d: [ends(g) for g in d],
        [[(0, 1)], [(0, 1), (1, 2)], [(0, 1), (1, 2)]],
    ),
    (
        "GDELTDataset",
        {},
        written.events("GDELT", 15),
        lambda d: (len(d), ends(d[1]), d[1].edata["rel_type"].tolist()),
        (3, [(0, 1), (1, 2)], [[5], [6]]),
    ),
    (
        "ICEWS18Dataset",
        {},
        written.events("ICEWS18", 24),
        lambda d: (len(d), ends(d[2])),
        (3, [(0, 1), (1, 2), (2, 0)]),
    ),
]
