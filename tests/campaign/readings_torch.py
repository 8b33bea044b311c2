"""Things that functions read, and ways to change them: tensors, modules, features and torch's own state."""

from __future__ import annotations

from tests.campaign.programs import Reading
from tests.campaign.readings import attribute

_COLUMNS = (
    "message", "reduce function", "apply function of update_all", "apply_edges", "apply_nodes", "bound method",
    "inherited method by super", "callable object", "static and class methods", "partial", "decorated function",
    "function made anew at every call", "method of an nn.Module",
)  # fmt: skip
_ROWS = tuple(
    name for name in _COLUMNS if name not in ("apply function of update_all", "apply_nodes", "reduce function")
)
_LARGER = "g = GRAPHS['larger']()"
TENSORS = (
    Reading("a tensor", "T = torch.full((2,), 2.0)", "T", {
        "in place": "T.mul_(3.5)", "item": "T[0] = 7.0", "another": "T = torch.full((2,), 7.0)", "data": "T.data = torch.full((2,), 7.0)",
        "another width": "T = torch.full((1,), 7.0)", "another rank": "T = torch.tensor(7.0)", "another dtype": "T = torch.full((2,), 7.0).double()",
        "integers": "T = torch.full((2,), 7)", "with gradient": "T.requires_grad_()\nT.data.fill_(7.0)", "set_": "T.set_(torch.full((2,), 7.0))",
        "a view": "T = torch.tensor([[7.0, 0.0], [3.0, 0.0]])[:, 0]", "a number": "T = 7.0", "resize_": "T.resize_(1).fill_(7.0)"}),
    Reading("two tensors that are one", "A = torch.full((2,), 2.0)\nB = A", "(A + B) / 2", {
        "apart": "B = torch.full((2,), 12.0)", "both": "A.fill_(7.0)", "a view": "B = A[:]\nA.fill_(7.0)"}),
    Reading("a tensor and its view", "A = torch.full((2,), 2.0)\nB = A[:]", "(A + B) / 2", {
        "apart": "B = torch.full((2,), 12.0)", "one": "B = A", "in place": "A.fill_(7.0)"}),
    Reading("a view that the function makes, too", "A = torch.full((2, 2), 1.0)\nB = A.t()", "(A.t() + B)[0]", {
        "apart": "B = torch.full((2, 2), 6.0)", "in place": "A.fill_(3.5)"}),
    Reading("an item of a tensor", "T = torch.tensor([2.0, 7.0])\ni = 0", "T[i]", {"index": "i = 1", "in place": "T[0] = 7.0", "the end": "i = -1"}),
    Reading("a number in a tensor", "T = torch.tensor(2.0)", "T.item()", {"in place": "T.fill_(7.0)", "another": "T = torch.tensor(7.0)"}),
    Reading("a branch on a tensor", "T = torch.tensor(2.0)", "2.0 if T > 1 else 7.0", {"in place": "T.fill_(0.0)"}),
    Reading("a list of a tensor", "T = torch.tensor([2.0])", "T.tolist()[0]", {"in place": "T.fill_(7.0)"}),
    Reading("an array of a tensor", "T = torch.tensor([2.0])", "float(T.numpy()[0])", {"in place": "T.fill_(7.0)"}),
    Reading("a float of a tensor", "T = torch.tensor([2.0])", "float(T)", {"in place": "T.fill_(7.0)"}),
    Reading("a shape", "T = torch.zeros(2, 1)", "float(T.shape[0])", {"another": "T = torch.zeros(7, 1)", "resize_": "T.resize_(7, 1)"}),
    Reading("numel", "T = torch.zeros(2)", "float(T.numel())", {"another": "T = torch.zeros(7)"}),
    Reading("dim", "T = torch.zeros(2, 2)", "float(T.dim())", {"another": "T = torch.zeros(1, 1, 1, 1, 1, 1, 1)"}),
    Reading("a dtype", "T = torch.zeros(2)", "2.0 if T.dtype == torch.float32 else 7.0", {"another": "T = T.double()", "data": "T.data = T.double()"}),
    Reading("a dtype by itself", "D = torch.float32", "2.0 if D.is_floating_point else 7.0", {"assign": "D = torch.int64"}),
    Reading("is_contiguous", "T = torch.zeros(2, 3)", "2.0 if T.is_contiguous() else 7.0", {"transposed": "T = torch.zeros(3, 2).t()"}),
    Reading("strides", "T = torch.zeros(2, 3)", "float(T.stride()[1] + 1)", {"transposed": "T = torch.zeros(3, 12).t()[:2]"}),
    Reading("requires_grad", "T = torch.zeros(2)", "7.0 if T.requires_grad else 2.0", {"requires_grad_": "T.requires_grad_()", "attribute": "T.requires_grad = True"}),
    Reading("is_leaf", "T = torch.zeros(2, requires_grad=True)", "2.0 if T.is_leaf else 7.0", {"made": "T = T * 2"}),
    Reading("grad", "T = torch.zeros(2, requires_grad=True)", "2.0 if T.grad is None else 7.0", {"backward": "T.sum().backward()", "assign": "T.grad = torch.ones(2)"}),
    Reading("a gradient", "T = torch.zeros(2)\nT.grad = torch.full((2,), 2.0)", "T.grad", {"in place": "T.grad.fill_(7.0)", "assign": "T.grad = torch.full((2,), 7.0)"}),
    Reading("a version", "T = torch.zeros(2)", "2.0 if T._version == 0 else 7.0", {"in place": "T.add_(1)"}),
    Reading("is_inference", "T = torch.zeros(2)", "7.0 if T.is_inference() else 2.0", {"made so": "with torch.inference_mode():\n    T = torch.zeros(2)"}),
    Reading("an attribute of a tensor", "T = torch.zeros(2)\nT.x = 2.0", "T.x", attribute("T", "x")),
    Reading("a device", "d = torch.device('cpu')", "2.0 if d.type == 'cpu' else 7.0", {"assign": "d = torch.device('meta')"}),
    Reading("a size", "S = torch.Size([2])", "float(S[0])", {"assign": "S = torch.Size([7])"}),
    Reading("a list of tensors", "L = [torch.full((2,), 1.0), torch.full((2,), 1.0)]", "sum(L)", {
        "append": "L.append(torch.full((2,), 5.0))", "item": "L[1] = torch.full((2,), 6.0)", "in place": "L[0].fill_(6.0)"}),
    Reading("a dict of tensors", "D = {'a': torch.full((2,), 2.0), 'b': torch.full((2,), 7.0)}\nk = 'a'", "D[k]", {"key": "k = 'b'", "swap": "D['a'] = D['b']"}),
    Reading("a quantity made of a tensor before", "A = torch.full((2,), 1.0)\nB = A * 2", "B", {"behind": "A.fill_(7.0)", "anew": "B = A * 7"}),
    Reading("a sparse tensor", "S = torch.eye(2).to_sparse() * 2", "rows_of(S)", {"assign": "S = torch.eye(2).to_sparse() * 7"},
            body="def rows_of(s):\n    return s.to_dense().sum(0)"),
    Reading("a complex number", "X = 2 + 0j", "X.real", {"assign": "X = 7 + 1j"}),
    Reading("a tensor subclass", "class S(torch.Tensor):\n    pass\nT = torch.full((2,), 2.0).as_subclass(S)", "T", {"in place": "T.fill_(7.0)"}),
    Reading("a method put on a tensor's class", "torch.Tensor.vg = lambda self: self * 2", "rows_", {"assign": "torch.Tensor.vg = lambda self: self * 7"},
            use="rows.vg()", after="del torch.Tensor.vg"),
    Reading("a function put into torch", "torch.vg = lambda rows: rows * 2", "torch.vg(rows)", {"assign": "torch.vg = lambda rows: rows * 7"}, use="{value}", after="del torch.vg"),
    Reading("a replaced function of F", "RELU = F.relu", "F.relu(rows)", {"assign": "F.relu = lambda rows: rows * 7"}, use="{value}", after="F.relu = RELU"),
    Reading("a replaced function of torch", "TANH = torch.tanh", "torch.tanh(rows)", {"assign": "torch.tanh = lambda rows: rows * 7"}, use="{value}", after="torch.tanh = TANH"),
    Reading("a custom gradient", "class Twice(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, rows):\n        return rows * X\n"
            "    @staticmethod\n    def backward(ctx, grad):\n        return grad * X\nX = 2.0", "Twice.apply(rows)", {"what it reads": "X = 7.0"}, use="{value}"),
)  # fmt: skip

_LAYER = """
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(2, 2)
        self.drop = nn.Dropout(0.0)
        self.register_buffer("scale", torch.ones(2))
        with torch.no_grad():
            self.map.weight.copy_(2 * torch.eye(2))
            self.map.bias.zero_()
    def inner(self, rows):
        return self.map(rows)
    def forward(self, rows):
        return self.drop(self.inner(rows)) * self.scale
layer = Layer()
"""
_WRITE = "with torch.no_grad():\n    "
MODULES = (
    Reading("a user's layer", _LAYER, "layer(rows)", {
        "a parameter in place": _WRITE + "layer.map.weight.mul_(3.5)", "data": "layer.map.weight.data.mul_(3.5)",
        "a parameter": "layer.map.weight = nn.Parameter(7 * torch.eye(2))", "_parameters": "layer.map._parameters['weight'] = nn.Parameter(7 * torch.eye(2))",
        "weight.data": "layer.map.weight.data = 7 * torch.eye(2)", "no bias": "layer.map.bias = None\n" + _WRITE + "layer.map.weight.mul_(3.5)",
        "load_state_dict": "state = {k: v.clone() for k, v in layer.state_dict().items()}\nstate['map.weight'].mul_(3.5)\nlayer.load_state_dict(state)",
        "load by assign": "state = {k: v * 3.5 for k, v in layer.state_dict().items()}\nlayer.load_state_dict(state, assign=True)",
        "another layer within": "layer.map = nn.Linear(2, 2, bias=False)\n" + _WRITE + "layer.map.weight.copy_(7 * torch.eye(2))",
        "identity within": "layer.map = nn.Identity()", "_modules": "layer._modules['map'] = nn.Identity()", "a list within": "layer.map = nn.Sequential(layer.map, layer.map)",
        "another layer": "layer = Layer()\n" + _WRITE + "layer.map.weight.mul_(3.5)", "a copy": "layer = copy.deepcopy(layer)\n" + _WRITE + "layer.map.weight.mul_(3.5)",
        "freeze": "layer.requires_grad_(False)\nlayer.map.weight.mul_(3.5)", "a buffer": "layer.scale = torch.full((2,), 3.5)", "a buffer in place": "layer.scale.fill_(3.5)",
        "register_buffer": "layer.register_buffer('scale', torch.full((2,), 3.5))", "a buffer that is a number": "del layer.scale\nlayer.scale = 3.5",
        "forward of the instance": "layer.forward = lambda rows: rows * 7", "forward of the class": "Layer.forward = lambda self, rows: rows * 7",
        "a helper of the class": "Layer.inner = lambda self, rows: rows * 7", "a helper of the instance": "layer.inner = lambda rows: rows * 7",
        "forward of a part": "layer.map.forward = lambda rows: rows * 7", "forward of another part": "nn.Linear(2, 2).forward = None",
        "__class__": "class Other(Layer):\n    def forward(self, rows):\n        return rows * 7\nlayer.__class__ = Other",
        "__call__": "Layer.__call__ = lambda self, rows: rows * 7", "__getattr__": "Layer.__getattr__ = lambda self, name: (lambda rows: rows * 7) if name == 'map' else 1.0\ndel layer._modules['map']",
        "a hook": "layer.register_forward_hook(lambda m, a, out: out * 3.5)", "a hook of a part": "layer.map.register_forward_hook(lambda m, a, out: out * 3.5)",
        "a hook before": "layer.register_forward_pre_hook(lambda m, a: (a[0] * 3.5,))", "a hook with keywords": "layer.register_forward_hook(lambda m, a, k, out: out * 3.5, with_kwargs=True)",
        "a parametrization": "import torch.nn.utils.parametrize as P\nclass Double(nn.Module):\n    def forward(self, w):\n        return 2 * w\nP.register_parametrization(layer.map, 'weight', Double())",
        "weight norm": "nn.utils.parametrizations.weight_norm(layer.map)\nlayer.map.parametrizations.weight.original0.data.mul_(3.5)",
        "to double": "layer.double()\ng.ndata['h'] = g.ndata['h'].double()", "to double and back": "layer.double().float()\n" + _WRITE + "layer.map.weight.mul_(3.5)",
        "optimizer": "layer(torch.ones(1, 2)).sum().backward()\ntorch.optim.SGD(layer.parameters(), 1.0).step()",
        "swap": "layer.map.weight, layer.map.bias = nn.Parameter(layer.map.weight.detach() + 1), nn.Parameter(layer.map.bias.detach() + 1)",
        "a shared parameter": "layer.map.bias = nn.Parameter(torch.ones(2))\nlayer.scale = layer.map.bias.detach()"}, use="{value}"),
    Reading("another instance of a layer", _LAYER + "other = Layer()", "layer(rows)", {
        "its forward": "other.forward = lambda rows: rows * 7", "its hook": "other.register_forward_hook(lambda m, a, out: out * 7)", "eval": "other.eval()"}, use="{value}"),
    Reading("two instances of a layer", _LAYER + "other = Layer()", "layer(other(rows))", {
        "forward of the second": "other.forward = lambda rows: rows * 7", "forward of the first": "layer.forward = lambda rows: rows * 7", "one": "other = layer",
        "a part of the second": "other.map = nn.Identity()", "hook of the second": "other.map.register_forward_hook(lambda m, a, out: out * 3)"}, use="{value}"),
    Reading("a torch layer", "layer = nn.Linear(2, 2)\n" + _WRITE + "layer.weight.copy_(2 * torch.eye(2))\n    layer.bias.zero_()", "layer(rows)", {
        "forward of the instance": "layer.forward = lambda rows: rows * 7", "another kind": "layer = nn.Identity()", "a function": "layer = lambda rows: rows * 7",
        "a hook": "layer.register_forward_hook(lambda m, a, out: out * 3.5)"}, use="{value}"),
    Reading("a torch layer's class", "class Mine(nn.Linear):\n    pass\nlayer = Mine(2, 2)\n" + _WRITE + "layer.weight.copy_(2 * torch.eye(2))\n    layer.bias.zero_()", "layer(rows)", {
        "forward of the class": "Mine.forward = lambda self, rows: rows * 7", "of the instance": "layer.forward = lambda rows: rows * 7"}, use="{value}"),
    Reading("torch's own class", "layer, KEEP = nn.Tanh(), nn.Tanh.forward", "layer(rows)", {"forward of the class": "nn.Tanh.forward = lambda self, rows: rows * 7"},
            use="{value}", after="nn.Tanh.forward = KEEP"),
    Reading("a setting of a layer", "layer = nn.LeakyReLU(2.0)", "layer(-rows)", {"assign": "layer.negative_slope = 7.0"}, use="{value}"),
    Reading("a batch norm's statistics", "layer = nn.BatchNorm1d(2).eval()", "layer(rows)", {"in place": "layer.running_mean.fill_(-7.0)", "momentum": "layer.running_var.fill_(4.0)",
            "eps": "layer.eps = 3.0"}, use="{value}"),
    Reading("training", "layer = nn.Identity()", "2.0 if layer.training else 7.0", {"eval": "layer.eval()", "assign": "layer.training = False", "__dict__": "layer.__dict__['training'] = False"}),
    Reading("training of a part", "layer = nn.Sequential(nn.Identity())", "2.0 if layer[0].training else 7.0", {"eval": "layer.eval()", "of the part": "layer[0].eval()"}),
    Reading("dropout", "layer = nn.Dropout(1.0).eval()", "layer(rows) * 2", {"train": "layer.train()", "train and p": "layer.train()\nlayer.p = 0.0"}, use="{value}"),
    Reading("a sequence of layers", "layers = nn.Sequential(nn.Identity(), nn.Identity())", "layers(rows) * 2", {
        "append": "layers.append(nn.Tanh())", "item": "layers[0] = nn.Tanh()", "delete": "layers.append(nn.Tanh())\ndel layers[1]", "insert": "layers.insert(0, nn.Tanh())"}, use="{value}"),
    Reading("a loop over layers", "layers = nn.ModuleList([nn.Identity(), nn.Identity()])", "out_ * 2", {
        "append": "layers.append(nn.Tanh())", "item": "layers[0] = nn.Tanh()", "reverse": "layers = nn.ModuleList([nn.Tanh()])"},
            body="out_ = rows\nfor each in layers:\n    out_ = each(out_)", use="{value}"),
    Reading("a dict of layers", "layers = nn.ModuleDict({'a': nn.Identity(), 'b': nn.Tanh()})\nkey = 'a'", "layers[key](rows) * 2", {
        "key": "key = 'b'", "item": "layers['a'] = nn.Tanh()", "update": "layers.update({'a': nn.Tanh()})"}, use="{value}"),
    Reading("parameters of a list", "layers = nn.ParameterList([nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))])", "sum(layers)", {
        "append": "layers.append(nn.Parameter(torch.ones(2)))", "item": "layers[1] = nn.Parameter(torch.full((2,), 6.0))", "in place": _WRITE + "layers[0].fill_(6.0)"}),
    Reading("all parameters", "layer = nn.Linear(2, 1)\n" + _WRITE + "[p.fill_(1.0) for p in layer.parameters()]", "sum(p.sum() for p in layer.parameters()) * 2 / 3", {
        "in place": _WRITE + "layer.bias.fill_(5.0)", "one more": "layer.more = nn.Parameter(torch.ones(2))", "none": "layer.bias = None"}),
    Reading("all buffers", "layer = nn.BatchNorm1d(2)", "sum(b.float().sum() for b in layer.buffers())", {"in place": "layer.running_mean.fill_(2.5)", "one more": "layer.register_buffer('x', torch.full((1,), 5.0))"}),
    Reading("all modules", "layer = nn.Sequential(nn.Identity())", "float(len(list(layer.modules())))", {"append": "layer.append(nn.Identity())", "within": "layer[0].more = nn.Identity()"}),
    Reading("the children of a module", "layer = nn.Sequential(nn.Identity(), nn.Identity())", "float(len(list(layer.children())))", {"append": "layer.append(nn.Identity())"}),
    Reading("a state dict", "layer = nn.Linear(2, 1)\n" + _WRITE + "[p.fill_(1.0) for p in layer.parameters()]", "layer.state_dict()['bias'] * 2", {"in place": _WRITE + "layer.bias.fill_(3.5)"}),
    Reading("get_submodule", "layer = nn.Sequential(nn.Identity())", "layer.get_submodule('0')(rows) * 2", {"item": "layer[0] = nn.Tanh()"}, use="{value}"),
    Reading("a module in a list", "layers = [nn.Identity()]", "layers[0](rows) * 2", {"item": "layers[0] = nn.Tanh()", "hook": "layers[0].register_forward_hook(lambda m, a, out: out * 3.5)"}, use="{value}"),
    Reading("an attribute of a layer that was absent", "class L(nn.Module):\n    pass\nlayer = L()", "layer.x if hasattr(layer, 'x') else 2.0", {
        "of the instance": "layer.x = 7.0", "of the class": "L.x = 7.0", "a buffer": "layer.register_buffer('x', torch.full((2,), 7.0))",
        "a parameter": "layer.x = nn.Parameter(torch.full((2,), 7.0))", "getattr": "L.__getattr__ = lambda self, name: 7.0"}),
    Reading("a hook on all modules", _LAYER + "HANDLES = []", "layer(rows)", {"forward": "from torch.nn.modules.module import register_module_forward_hook\nHANDLES.append(register_module_forward_hook(lambda m, a, out: out * 2))",
            "before": "from torch.nn.modules.module import register_module_forward_pre_hook\nHANDLES.append(register_module_forward_pre_hook(lambda m, a: (a[0] * 2,)))"},
            use="{value}", after="[handle.remove() for handle in HANDLES]"),
    Reading("a hook that reads", _LAYER + "X = 1.0\nlayer.register_forward_hook(lambda m, a, out: out * X)", "layer(rows)", {"what it reads": "X = 7.0", "removed": "layer._forward_hooks.clear()\nX = 7.0"}, use="{value}"),
    Reading("functional_call", _LAYER + "W = {'map.weight': 2 * torch.eye(2)}", "torch.func.functional_call(layer, W, (rows,))", {"in place": "W['map.weight'].fill_(7.0)",
            "another": "W = {'map.weight': 7 * torch.eye(2)}", "one more": "W['scale'] = torch.full((2,), 7.0)"}, use="{value}"),
)  # fmt: skip

STATE = (
    Reading("grad mode", "", "2.0 if torch.is_grad_enabled() else 7.0", {"off": "torch.set_grad_enabled(False)"}, after="torch.set_grad_enabled(True)"),
    Reading("inference mode", "", "7.0 if torch.is_inference_mode_enabled() else 2.0", {"on": "MODE = torch.inference_mode()\nMODE.__enter__()"},
            after="MODE.__exit__(None, None, None) if 'MODE' in globals() else None"),
    Reading("the default dtype", "", "2.0 if torch.get_default_dtype() == torch.float32 else 7.0", {"set": "torch.set_default_dtype(torch.float64)"}, after="torch.set_default_dtype(torch.float32)"),
    Reading("the default dtype by a tensor", "", "2.0 if torch.ones(1).dtype == torch.float32 else 7.0", {"set": "torch.set_default_dtype(torch.float64)"}, after="torch.set_default_dtype(torch.float32)"),
    Reading("autocast", "", "7.0 if torch.is_autocast_enabled('cpu') else 2.0", {"on": "MODE = torch.autocast('cpu', torch.bfloat16)\nMODE.__enter__()"},
            after="MODE.__exit__(None, None, None) if 'MODE' in globals() else None"),
    Reading("deterministic algorithms", "", "7.0 if torch.are_deterministic_algorithms_enabled() else 2.0", {"on": "torch.use_deterministic_algorithms(True)"}, after="torch.use_deterministic_algorithms(False)"),
    Reading("warn-only determinism", "", "7.0 if torch.is_deterministic_algorithms_warn_only_enabled() else 2.0", {"on": "torch.use_deterministic_algorithms(True, warn_only=True)"}, after="torch.use_deterministic_algorithms(False)"),
    Reading("the number of threads", "torch.set_num_threads(1)", "2.0 if torch.get_num_threads() == 1 else 7.0", {"set": "torch.set_num_threads(2)"}, after="torch.set_num_threads(1)"),
    Reading("the precision of products", "", "2.0 if torch.get_float32_matmul_precision() == 'highest' else 7.0", {"set": "torch.set_float32_matmul_precision('high')"}, after="torch.set_float32_matmul_precision('highest')"),
    Reading("a backend's flag", "", "2.0 if not torch.backends.cudnn.benchmark else 7.0", {"set": "torch.backends.cudnn.benchmark = True"}, after="torch.backends.cudnn.benchmark = False"),
    Reading("mkldnn's flag", "", "2.0 if torch.backends.mkldnn.enabled else 7.0", {"nothing": ""}),
    Reading("anomaly mode", "", "7.0 if torch.is_anomaly_enabled() else 2.0", {"on": "torch.autograd.set_detect_anomaly(True)"}, after="torch.autograd.set_detect_anomaly(False)"),
    Reading("torch's seed", "torch.manual_seed(5)", "2.0 if torch.initial_seed() == 5 else 7.0", {"seed": "torch.manual_seed(6)"}),
    Reading("an environment switch of torch", "", "2.0 if torch.cuda.is_available() in (True, False) else 7.0", {"nothing": ""}),
    Reading("random numbers", "", "torch.rand(2)", {"nothing": ""}, expects="vary"),
    Reading("random numbers of rows", "", "torch.rand_like(rows)", {"nothing": ""}, expects="vary"),
    Reading("a random permutation", "", "torch.randperm(1000)[:2].float()", {"nothing": ""}, expects="vary"),
    Reading("a generator", "G = torch.Generator().manual_seed(0)", "torch.rand(2, generator=G)", {"nothing": ""}, expects="vary"),
)  # fmt: skip

FEATURES = (
    Reading("a feature that was absent", "", "COLUMNS['w'] if 'w' in COLUMNS else 2.0", {"set": "g.FRAME['w'] = torch.full((SIZE, 2), 7.0)"}, hosts=_COLUMNS, is_direct=True),
    Reading("a feature by get", "", "COLUMNS.get('w', 2.0)", {"set": "g.FRAME['w'] = torch.full((SIZE, 2), 7.0)"}, hosts=_COLUMNS, is_direct=True),
    Reading("a feature behind except", "", "value", {"set": "g.FRAME['w'] = torch.full((SIZE, 2), 7.0)"}, hosts=_COLUMNS, is_direct=True,
            body="try:\n    value = COLUMNS['w']\nexcept KeyError:\n    value = 2.0"),
    Reading("all features", "", "2.0 + 5 * ('w' in list(COLUMNS))", {"set": "g.FRAME['w'] = torch.full((SIZE, 2), 7.0)"}, hosts=_COLUMNS, is_direct=True),
    Reading("the number of features", "", "float(2 + len(COLUMNS))", {"set": "g.FRAME['w'] = torch.full((SIZE, 2), 7.0)"}, hosts=_COLUMNS, is_direct=True),
    Reading("a feature", "", "COLUMNS.get('w', 2.0)", {
        "another dtype": "g.FRAME['w'] = torch.full((SIZE, 2), 7.0).double()", "another width": "g.FRAME['w'] = torch.full((SIZE, 1), 7.0)",
        "with gradient": "g.FRAME['w'] = torch.full((SIZE, 2), 7.0, requires_grad=True)", "set and removed": "g.FRAME['w'] = torch.full((SIZE, 2), 7.0)\ndel g.FRAME['w']"},
            hosts=_COLUMNS, is_direct=True),
    Reading("the rows' dtype", "", "2.0 if rows.dtype == torch.float32 else 7.0", {"double": "g.ndata['h'] = g.ndata['h'].double()"}, hosts=_ROWS),
    Reading("the rows' width", "", "float(rows.shape[1])", {"wider": "g.ndata['h'] = torch.ones(5, 7)"}, hosts=tuple(n for n in _ROWS if n != "method of an nn.Module")),
    Reading("the rows' rank", "", "float(rows.dim())", {"higher": "g.ndata['h'] = torch.ones(5, 2, 1, 1, 1, 1, 1)"}, hosts=tuple(n for n in _ROWS if n != "method of an nn.Module")),
    Reading("the rows' gradient", "", "7.0 if rows.requires_grad else 2.0", {"on": "g.ndata['h'] = torch.ones(5, 2, requires_grad=True)"}, hosts=tuple(n for n in _ROWS if n != "method of an nn.Module")),
    Reading("the rows' device", "", "2.0 if rows.device.type == 'cpu' else 7.0", {"nothing": ""}),
    Reading("len(rows)", "", "float(len(rows))", {"larger": _LARGER}, hosts=_ROWS),
    Reading("rows.shape[0]", "", "float(int(rows.shape[0]))", {"larger": _LARGER}, hosts=_ROWS),
    Reading("rows.size(0)", "", "1.0 / rows.size(0)", {"larger": _LARGER}, hosts=_ROWS),
    Reading("a branch on the number of rows", "", "2.0 if rows.shape[0] < 8 else 7.0", {"larger": _LARGER}, hosts=_ROWS),
    Reading("rows.numel()", "", "float(rows.numel())", {"larger": _LARGER}, hosts=_ROWS),
    Reading("a range over rows", "", "float(sum(range(len(rows))))", {"larger": _LARGER}, hosts=_ROWS),
    Reading("a text of the number of rows", "", "float(f'{len(rows)}')", {"larger": _LARGER}, hosts=_ROWS),
    Reading("a table by the number of rows", "D = {6: 2.0}", "D.get(len(rows), 7.0)", {"larger": _LARGER}, hosts=_ROWS),
    Reading("a mean over rows", "", "rows.mean(0)", {"larger": _LARGER, "another": "g.ndata['h'] = g.ndata['h'] * 3"}, hosts=_ROWS),
    Reading("a branch on rows", "", "2.0 if rows.sum() > -1e6 else 7.0", {"another": "g.ndata['h'] = g.ndata['h'] - 1e7"}, hosts=_ROWS),
    Reading("a number of rows", "", "rows.sum().item()", {"another": "g.ndata['h'] = g.ndata['h'] * 3"}, hosts=_ROWS),
)  # fmt: skip
TORCH_READINGS = (*TENSORS, *MODULES, *STATE, *FEATURES)
