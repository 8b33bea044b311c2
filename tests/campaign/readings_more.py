"""Things that functions read, and ways to change them: what comes in from elsewhere, by ways that are less travelled."""

from __future__ import annotations

from tests.campaign.programs import Reading
from tests.campaign.readings import attribute, mapping, through_dict

_WRITE = "with torch.no_grad():\n    "
INDIRECT = (
    Reading("eval", "X = 2.0", "eval('X')", {"what it reads": "X = 7.0"}),
    Reading("eval of a text", "X, Y, S = 2.0, 7.0, 'X'", "eval(S, globals())", {"the text": "S = 'Y'", "what it reads": "X = 7.0"}),
    Reading("exec", "X = 2.0", "space['y']", {"what it reads": "X = 7.0"}, body="space = {}\nexec('y = X', globals(), space)"),
    Reading("globals() as a table", "X = 2.0", "globals()['X']", {"assign": "X = 7.0"}),
    Reading("a frame's globals", "X = 2.0", "sys._getframe().f_globals['X']", {"assign": "X = 7.0"}),
    Reading("__globals__ of a function", "X = 2.0\ndef holder():\n    pass", "holder.__globals__['X']", {"assign": "X = 7.0"}),
    Reading("the cell of a function", "def make_holder(x):\n    return lambda: x\nholder = make_holder(2.0)", "holder.__closure__[0].cell_contents", {
        "cell": "holder.__closure__[0].cell_contents = 7.0", "another": "holder = make_holder(7.0)"}),
    Reading("the default of a function", "def holder(x=2.0):\n    pass", "holder.__defaults__[0]", {"__defaults__": "holder.__defaults__ = (7.0,)"}),
    Reading("the text of a function", "def holder():\n    'two'", "2.0 if holder.__doc__ == 'two' else 7.0", {"__doc__": "holder.__doc__ = 'seven'"}),
    Reading("the name of a function", "def holder():\n    pass", "2.0 if holder.__name__ == 'holder' else 7.0", {"__name__": "holder.__name__ = 'other'"}),
    Reading("annotations", "def holder(x: 2):\n    pass", "float(holder.__annotations__['x'])", {"item": "holder.__annotations__['x'] = 7"}),
    Reading("a signature", "import inspect\ndef holder(x=2.0):\n    pass", "inspect.signature(holder).parameters['x'].default", {
        "__defaults__": "holder.__defaults__ = (7.0,)", "__signature__": "holder.__signature__ = inspect.signature(lambda x=7.0: x)"}),
    Reading("a method's function", "class T:\n    def read(self):\n        return 2.0\nt = T()\nm = t.read", "m()", {
        "another": "m = lambda: 7.0", "its code": "T.read.__code__ = (lambda self: 7.0).__code__", "its object's class stays bound": "T.read = lambda self: 7.0"}),
    Reading("a method of a container", "L = [2.0]\nread = L.__getitem__", "read(0)", {"item": "L[0] = 7.0", "another": "read = [7.0].__getitem__"}),
    Reading("a getter of a dict", "D = {'x': 2.0}\nread = D.get", "read('x')", mapping("D", "'x'")),
    Reading("a caller of methods", "t = types.SimpleNamespace(f=lambda: 2.0)\nread = operator.methodcaller('f')", "read(t)", {"method": "t.f = lambda: 7.0"}),
    Reading("an item getter", "D, read = {'x': 2.0, 'y': 7.0}, operator.itemgetter('x')", "read(D)", {"item": "D['x'] = 7.0", "getter": "read = operator.itemgetter('y')"}),
    Reading("a view of a dict's values", "D = {'x': 2.0}\nV = D.values()", "sum(V)", {"item": "D['x'] = 7.0", "add": "D['y'] = 5.0"}),
    Reading("a view of a dict's keys", "D = {2.0: 1}\nV = D.keys()", "sum(V)", {"add": "D[5.0] = 1"}),
    Reading("a view of a dict's items", "D = {'x': 2.0}\nV = D.items()", "sum(v for _, v in V)", {"item": "D['x'] = 7.0"}),
    Reading("sorted", "D = [3.0, 2.0]", "sorted(D)[0]", {"append": "D.append(1.0)", "item": "D[1] = 7.0"}),
    Reading("any", "D = [0, 0]", "7.0 if any(D) else 2.0", {"item": "D[1] = 1"}),
    Reading("enumerate", "D = [0.0, 2.0]", "sum(i * x for i, x in enumerate(D))", {"item": "D[1] = 7.0", "append": "D.append(2.5)"}),
    Reading("zip of two", "A, B = [2.0], [1.0]", "sum(a * b for a, b in zip(A, B))", {"second": "B[0] = 3.5", "longer": "A.append(5.0)\nB.append(1.0)"}),
    Reading("a dict comprehension", "D = {'x': 2.0}", "{k: v for k, v in D.items()}['x']", mapping("D", "'x'")),
    Reading("**kwargs", "D = {'x': 2.0}", "(lambda **k: k['x'])(**D)", mapping("D", "'x'")),
    Reading("*args", "D = [2.0]", "(lambda *a: sum(a))(*D)", {"append": "D.append(5.0)", "item": "D[0] = 7.0"}),
    Reading("copy", "t = types.SimpleNamespace(x=[2.0])", "copy.deepcopy(t).x[0]", {"item": "t.x[0] = 7.0", "attribute": "t.x = [7.0]"}),
    Reading("json", "import json\nS = '2.0'", "json.loads(S)", {"text": "S = '7.0'"}),
    Reading("literal_eval", "import ast\nS = '2.0'", "ast.literal_eval(S)", {"text": "S = '7.0'"}),
    Reading("struct", "import struct\nS = bytearray(struct.pack('d', 2.0))", "struct.unpack('d', S)[0]", {"in place": "S[:] = struct.pack('d', 7.0)"}),
    Reading("a text in memory", "import io\nS = io.StringIO('2.0')", "float(S.getvalue())", {"write": "S.seek(0)\nS.write('7.0')"}),
    Reading("a configuration", "import configparser\nC = configparser.ConfigParser()\nC.read_dict({'a': {'x': '2'}})", "C.getfloat('a', 'x')", {"set": "C.set('a', 'x', '7')", "item": "C['a']['x'] = '7'"}),
    Reading("statistics", "import statistics\nD = [2.0]", "statistics.mean(D)", {"append": "D.append(12.0)"}),
    Reading("a heap", "import heapq\nD = [2.0, 5.0]", "heapq.nsmallest(1, D)[0]", {"push": "heapq.heappush(D, 1.0)"}),
    Reading("a permutation of flags", "class E(enum.Flag):\n    A = 1\n    B = 2\ne = E.A", "2.0 if E.A in e else 7.0", {"assign": "e = E.B", "both": "e = E.A | E.B"}),
    Reading("a template", "import string\nS = string.Template('$x')\nX = 2", "float(S.substitute(x=X))", {"number": "X = 7", "template": "S.template = '7'"}),
    Reading("a registered subclass", "import abc\nclass A(abc.ABC):\n    pass\nclass T:\n    pass\nt = T()", "7.0 if isinstance(t, A) else 2.0", {"register": "A.register(T)"}),
    Reading("subclasses", "class T:\n    pass", "2.0 + 5 * len(T.__subclasses__())", {"one": "class U(T):\n    pass"}),
    Reading("an abstract property", "class T:\n    @classmethod\n    def x(cls):\n        return cls.y\n    y = 2.0", "T.x()", {"what it reads": "T.y = 7.0", "another": "T.x = classmethod(lambda cls: 7.0)"}),
    Reading("a static method", "class T:\n    @staticmethod\n    def x():\n        return 2.0", "T.x()", {"another": "T.x = staticmethod(lambda: 7.0)", "its code": "T.x.__code__ = (lambda: 7.0).__code__"}),
    Reading("a nested class", "class T:\n    class U:\n        x = 2.0", "T.U.x", {**attribute("T.U", "x"), "another": "T.U = type('U', (), {'x': 7.0})"}),
    Reading("multiple inheritance", "class A:\n    pass\nclass B:\n    x = 2.0\nclass T(A, B):\n    pass\nt = T()", "t.x", {"of the first": "A.x = 7.0", "of the second": "B.x = 7.0", "of the class": "T.x = 7.0"}),
    Reading("a mixin's method", "class A:\n    pass\nclass B:\n    def f(self):\n        return 2.0\nclass T(A, B):\n    pass\nt = T()", "t.f()", {"of the first": "A.f = lambda self: 7.0", "of the second": "B.f = lambda self: 7.0"}),
    Reading("a metaclass's method", "class M(type):\n    def f(cls):\n        return 2.0\nclass T(metaclass=M):\n    pass", "T.f()", {"of the metaclass": "M.f = lambda cls: 7.0", "of the class": "T.f = lambda: 7.0"}),
    Reading("a metaclass's __getattr__", "class M(type):\n    def __getattr__(cls, name):\n        return STORE[name]\nSTORE = {'x': 2.0}\nclass T(metaclass=M):\n    pass", "T.x", {"store": "STORE['x'] = 7.0", "of the class": "T.x = 7.0"}),
    Reading("a module's __getattr__", "later = types.ModuleType('later')\nSTORE = {'x': 2.0}\nlater.__getattr__ = lambda name: STORE[name]", "later.x", {"store": "STORE['x'] = 7.0", "attribute": "later.x = 7.0"}),
    Reading("a package's module", "later = types.ModuleType('later')\nlater.sub = types.ModuleType('later.sub')\nlater.sub.x = 2.0", "later.sub.x", {**through_dict("later.sub", "x"), "another": "later.sub = types.SimpleNamespace(x=7.0)"}),
    Reading("operators of a class", "class V:\n    def __init__(self, x):\n        self.x = x\n    def __mul__(self, other):\n        return self.x * other\nv = V(2.0)", "v * 1.0", {
        "attribute": "v.x = 7.0", "operator": "V.__mul__ = lambda self, other: 7.0", "another": "v = V(7.0)"}),
    Reading("a comparison of a class", "@functools.total_ordering\nclass V:\n    x = 1\n    def __lt__(self, other):\n        return self.x < other\n    def __eq__(self, other):\n        return self.x == other\n    __hash__ = None\nv = V()", "2.0 if v <= 1 else 7.0", attribute("v", "x", "5")),
    Reading("a context manager's state", "import contextlib\nX = [2.0]\n@contextlib.contextmanager\ndef scaled():\n    yield X[-1]", "value", {"push": "X.append(7.0)"}, body="with scaled() as value:\n    pass"),
    Reading("match", "t = {'kind': 'a'}", "value", {"item": "t['kind'] = 'b'"}, body="match t:\n    case {'kind': 'a'}:\n        value = 2.0\n    case _:\n        value = 7.0"),
    Reading("a loop's bound", "N = 2", "value", {"assign": "N = 7"}, body="value = 0.0\nfor _ in range(N):\n    value = value + 1.0"),
    Reading("a while's condition", "t = types.SimpleNamespace(n=2)", "value", {"assign": "t.n = 7"}, body="value = 0.0\nwhile value < t.n:\n    value = value + 1.0"),
    Reading("a recursion's depth", "N = 2\ndef count(n):\n    return 0.0 if n == 0 else 1.0 + count(n - 1)", "count(N)", {"assign": "N = 7"}),
    Reading("an exception's argument", "t = ValueError(2.0)", "t.args[0]", {"args": "t.args = (7.0,)"}),
    Reading("what is raised inside", "t = types.SimpleNamespace(n=2.0)\ndef fail():\n    raise ValueError(t.n)", "value", {"attribute": "t.n = 7.0"}, body="try:\n    fail()\nexcept ValueError as error:\n    value = error.args[0]"),
    Reading("an assertion", "t = types.SimpleNamespace(ok=True)", "2.0", {"attribute": "t.ok = False"}, body="assert t.ok"),
    Reading("a thread's name", "thread = threading.Thread(name='a')", "2.0 if thread.name == 'a' else 7.0", {"name": "thread.name = 'b'"}),
    Reading("the number of references", "t = []\nkept = []", "float(2 + 5 * (sys.getrefcount(t) > 40))", {"keep": "kept.extend([t] * 50)"}),
    Reading("a cached function's own table", "CACHE = {}\ndef read():\n    if 'x' not in CACHE:\n        CACHE['x'] = X\n    return CACHE['x']\nX = 2.0", "read()", {"stays": "X = 7.0", "forget": "X = 7.0\nCACHE.clear()"}),
    Reading("what it made once", "class T:\n    def read(self):\n        if not hasattr(self, 'x'):\n            self.x = X\n        return self.x\nX, t = 2.0, T()", "t.read()", {"stays": "X = 7.0", "forget": "X = 7.0\ndel t.x"}),
)  # fmt: skip

TRAINING = (
    Reading("a learning rate", "w = nn.Parameter(torch.zeros(1))\nopt = torch.optim.SGD([w], lr=2.0)", "opt.param_groups[0]['lr']", {"item": "opt.param_groups[0]['lr'] = 7.0", "add": "opt.param_groups.insert(0, {'lr': 7.0, 'params': []})"}),
    Reading("an optimizer's defaults", "w = nn.Parameter(torch.zeros(1))\nopt = torch.optim.SGD([w], lr=2.0)", "opt.defaults['lr']", {"item": "opt.defaults['lr'] = 7.0"}),
    Reading("an optimizer's state", "w = nn.Parameter(torch.zeros(1))\nopt = torch.optim.Adam([w])", "7.0 if opt.state else 2.0", {"step": "w.sum().backward()\nopt.step()"}),
    Reading("an info of a dtype", "D = torch.float32", "2.0 if torch.finfo(D).bits == 32 else 7.0", {"assign": "D = torch.float64"}),
    Reading("a scripted function", "@torch.jit.script\ndef twice(x):\n    return x * 2\n@torch.jit.script\ndef seven(x):\n    return x * 7", "twice(rows)", {"assign": "twice = seven"}, use="{value}"),
    Reading("a wrapped module", "class W(nn.Module):\n    def __init__(self, inner):\n        super().__init__()\n        self.inner = inner\n    def __getattr__(self, name):\n        try:\n            return super().__getattr__(name)\n"
            "        except AttributeError:\n            return getattr(super().__getattr__('inner'), name)\nbase = nn.Identity()\nbase.x = 2.0\nw = W(base)", "w.x", {"inner": "base.x = 7.0", "outer": "w.x = 7.0", "another": "other = nn.Identity()\nother.x = 7.0\nw.inner = other"}),
    Reading("a pruned layer", "import torch.nn.utils.prune as prune\nlayer = nn.Linear(2, 2, bias=False)\n" + _WRITE + "layer.weight.copy_(2 * torch.eye(2))\nprune.identity(layer, 'weight')", "layer(rows)", {
        "mask": "layer.weight_mask.mul_(3.5)", "original": "layer.weight_orig.data.mul_(3.5)", "removed": "prune.remove(layer, 'weight')\nlayer.weight.data.mul_(3.5)"}, use="{value}"),
    Reading("spectral norm", "torch.manual_seed(0)\nlayer = nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2, bias=False)).eval()", "layer(rows)", {
        "original": "layer.parametrizations.weight.original.data.copy_(torch.tensor([[1.0, 2.0], [3.0, 5.0]]))", "removed": "import torch.nn.utils.parametrize as P\nP.remove_parametrizations(layer, 'weight')\nlayer.weight.data.mul_(3.5)"}, use="{value}"),
    Reading("an embedding", "layer = nn.Embedding(3, 2)\n" + _WRITE + "layer.weight.fill_(2.0)\nids = torch.tensor([1])", "layer(ids)", {"weight": _WRITE + "layer.weight[1] = 7.0", "ids": _WRITE + "layer.weight[2] = 7.0\nids.fill_(2)", "max_norm": "layer.max_norm = 1.0"}),
    Reading("a lazy layer", "layer = nn.LazyLinear(2, bias=False)\nlayer(torch.ones(1, 2))\n" + _WRITE + "layer.weight.copy_(2 * torch.eye(2))", "layer(rows)", {"weight": _WRITE + "layer.weight.mul_(3.5)"}, use="{value}"),
    Reading("tied layers", "one = nn.Linear(2, 2, bias=False)\ntwo = nn.Linear(2, 2, bias=False)\ntwo.weight = one.weight\n" + _WRITE + "one.weight.copy_(2 ** 0.5 * torch.eye(2))", "two(one(rows))", {
        "apart": "two.weight = nn.Parameter(7 * torch.eye(2))", "both": _WRITE + "one.weight.mul_(2.0)", "other way": "one.weight = nn.Parameter(7 * torch.eye(2))"}, use="{value}"),
    Reading("an average of weights", "layer = nn.Linear(2, 2, bias=False)\n" + _WRITE + "layer.weight.copy_(2 * torch.eye(2))\nema = torch.optim.swa_utils.AveragedModel(layer)", "ema(rows)", {
        "update": _WRITE + "layer.weight.mul_(6.0)\nema.update_parameters(layer)", "twice": "ema.update_parameters(layer)\n" + _WRITE + "layer.weight.mul_(6.0)\nema.update_parameters(layer)"}, use="{value}"),
    Reading("a flag of a layer", "class L(nn.Module):\n    fast = True\n    def forward(self, rows):\n        return rows * 2 if self.fast else rows * 7\nlayer = L()", "layer(rows)", {**attribute("layer", "fast", "False"), "of the class": "L.fast = False", "delete": "layer.fast = False\ndel layer.fast\nL.fast = False"}, use="{value}"),
    Reading("a step counter of a layer", "class L(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.step = 0\n    def forward(self, rows):\n        return rows * 2 if self.step < 3 else rows * 7\nlayer = L()", "layer(rows)", {
        "assign": "layer.step = 5", "in steps": "layer.step += 1\nlayer.step += 1\nlayer.step += 1"}, use="{value}"),
    Reading("an annealed number", "t = types.SimpleNamespace(beta=1.0)", "2.0 / t.beta", {"halved": "t.beta /= 2", "an int": "t.beta = 2", "zero": "t.beta = 0.0", "negative": "t.beta = -1.0"}),
    Reading("an activation by name", "ACT, name = {'tanh': torch.tanh, 'relu': torch.relu}, 'tanh'", "ACT[name](rows)", {"name": "name = 'relu'", "table": "ACT['tanh'] = torch.relu", "getattr": "ACT = {'tanh': torch.sigmoid}"}, use="{value}"),
    Reading("an activation by getattr", "name = 'tanh'", "getattr(torch, name)(rows)", {"name": "name = 'relu'"}, use="{value}"),
    Reading("a layer kept in a dict", "state = {'layer': nn.Identity()}", "state['layer'](rows) * 2", {"item": "state['layer'] = nn.Tanh()", "hook": "state['layer'].register_forward_hook(lambda m, a, out: out * 3.5)", "forward": "state['layer'].forward = lambda rows: rows * 3.5"}, use="{value}"),
    Reading("a mask", "M = torch.tensor([True, False])", "torch.where(M, 2.0, 7.0)", {"in place": "M.logical_not_()", "another": "M = torch.tensor([False, False])"}),
    Reading("an index", "W, i = torch.tensor([[2.0, 2.0], [7.0, 7.0]]), torch.tensor(0)", "W[i]", {"in place": "i.fill_(1)", "another": "i = torch.tensor(1)", "a number": "i = 1", "weights": "W.mul_(3.5)"}),
    Reading("a tensor made of a list", "L = [2.0, 2.0]", "torch.tensor(L)", {"item": "L[0] = 7.0", "another": "L = [7.0, 7.0]"}),
    Reading("a tensor made of a number", "t = types.SimpleNamespace(x=2.0)", "torch.full((2,), t.x)", {"assign": "t.x = 7.0", "an int": "t.x = 7"}),
    Reading("a width", "t = types.SimpleNamespace(n=2)", "torch.ones(2, t.n).sum(1)", {"assign": "t.n = 7"}),
    Reading("a dim", "t = types.SimpleNamespace(d=0)", "torch.tensor([[1.0, 3.0], [1.0, 3.0]]).sum(t.d)", {"assign": "t.d = 1"}),
    Reading("a tensor of a file", "import pathlib, tempfile\nname = pathlib.Path(tempfile.gettempdir(), f'vg-{os.getpid()}.pt')\ntorch.save(torch.full((2,), 2.0), name)", "torch.load(name)", {"save": "torch.save(torch.full((2,), 7.0), name)"}, after="name.unlink(True)"),
    Reading("a shared array", "A = np.full(2, 2.0, dtype='float32')\nT = torch.from_numpy(A)", "T", {"behind": "A[:] = 7.0"}),
    Reading("a tensor's hook", "T = torch.full((2,), 2.0, requires_grad=True)\nX = [0]\nT.register_hook(lambda grad: X.append(1))", "T", {"in place": _WRITE + "T.fill_(7.0)"}),
)  # fmt: skip
MORE_READINGS = (*INDIRECT, *TRAINING)
