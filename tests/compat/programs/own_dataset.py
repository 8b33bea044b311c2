"""A data set of one's own: made once, saved, loaded again, split, batched, learned, pickled."""

import os
import pickle
import tempfile

import dgl
import torch
from dgl.data import DGLDataset
from dgl.data.utils import load_graphs, load_info, makedirs, save_graphs, save_info
from dgl.dataloading import GraphDataLoader
from torch import nn
from torch.utils.data.sampler import SubsetRandomSampler


class RingsAndStars(DGLDataset):
    def __init__(self, raw_dir=None):
        super().__init__(name="rings_and_stars", raw_dir=raw_dir)

    def process(self):
        print("processed")
        torch.manual_seed(3)
        self.graphs, labels = [], []
        for i in range(20):
            src = torch.arange(5 + i % 4)
            dst = torch.zeros_like(src) if i % 2 else (src + 1) % len(src)
            g = dgl.add_self_loop(dgl.remove_self_loop(dgl.to_bidirected(dgl.graph((src, dst)))))
            g.ndata["attr"] = torch.randn(g.num_nodes(), 3)
            self.graphs.append(g)
            labels.append(i % 2)
        self.labels = torch.tensor(labels)

    def save(self):
        makedirs(self.save_path)
        save_graphs(os.path.join(self.save_path, "graphs.bin"), self.graphs, {"labels": self.labels})
        save_info(os.path.join(self.save_path, "info.pkl"), {"num_classes": 2})

    def load(self):
        self.graphs, found = load_graphs(os.path.join(self.save_path, "graphs.bin"))
        self.labels = found["labels"]
        print("loaded", load_info(os.path.join(self.save_path, "info.pkl")))

    def has_cache(self):
        return os.path.exists(os.path.join(self.save_path, "graphs.bin"))

    def __getitem__(self, i):
        return self.graphs[i], self.labels[i]

    def __len__(self):
        return len(self.graphs)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = dgl.nn.GraphConv(3, 8), dgl.nn.GraphConv(8, 2)

    def forward(self, g, x):
        with g.local_scope():
            g.ndata["h"] = self.conv2(g, torch.relu(self.conv1(g, x)))
            return dgl.mean_nodes(g, "h")


def main():
    with tempfile.TemporaryDirectory() as folder:
        RingsAndStars(folder)
        data = RingsAndStars(folder)
    print(len(data), data.name, data[1][0].num_edges(), data[1][1])
    sampled = GraphDataLoader(data, sampler=SubsetRandomSampler(torch.arange(16)), batch_size=5, drop_last=False)
    print(sorted(g.batch_size for g, _ in sampled))
    model = Classifier()
    for i, parameter in enumerate(model.parameters()):
        parameter.data = torch.linspace(-0.6, 0.6, parameter.numel()).roll(3 * i).view(parameter.shape)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for epoch in range(4):
        for g, labels in GraphDataLoader(data, batch_size=5):
            loss = nn.functional.cross_entropy(model(g, g.ndata["attr"]), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}, loss {loss.item():.4f}, {g.batch_num_nodes().tolist()}")
    again = pickle.loads(pickle.dumps(data))
    print(len(again), again[3][0].edges()[0].tolist())


main()
