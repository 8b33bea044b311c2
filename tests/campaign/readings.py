"""Things that functions read, and ways to change them: Python's own (readings_torch.py has torch's).

Every reading gives 2.0 before it is changed.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.campaign.programs import Reading

_HAS_COLUMNS = (
    "message", "reduce function", "apply function of update_all", "apply_edges", "apply_nodes", "bound method",
    "inherited method by super", "callable object", "static and class methods", "partial", "decorated function",
    "function made anew at every call", "method of an nn.Module",
)  # fmt: skip


def attribute(target: str, name: str, new: str = "7.0") -> Mapping[str, str]:
    """Ways to set an attribute."""
    return {
        "assign": f"{target}.{name} = {new}",
        "setattr": f"setattr({target}, {name!r}, {new})",
        "through an alias": f"alias = {target}\nalias.{name} = {new}",
        "exec": f"exec('{target}.{name} = {new}')",
    }


def through_dict(target: str, name: str, new: str = "7.0") -> Mapping[str, str]:
    """Ways to change an object's own dict."""
    return {
        **attribute(target, name, new),
        "__dict__": f"{target}.__dict__[{name!r}] = {new}",
        "vars().update": f"vars({target}).update({name}={new})",
        "delete and set": f"del {target}.{name}\n{target}.{name} = {new}",
    }


def item(target: str, key: str, new: str = "7.0") -> Mapping[str, str]:
    """Ways to set an item."""
    return {
        "assign": f"{target}[{key}] = {new}",
        "__setitem__": f"{target}.__setitem__({key}, {new})",
        "operator.setitem": f"operator.setitem({target}, {key}, {new})",
        "in place": f"{target}[{key}] *= 3.5",
    }


def mapping(target: str, key: str, new: str = "7.0") -> Mapping[str, str]:
    return {
        **item(target, key, new),
        "update": f"{target}.update({{{key}: {new}}})",
        "pop and set": f"{target}.pop({key})\n{target}[{key}] = {new}",
        "clear and set": f"{target}.clear()\n{target}[{key}] = {new}",
    }


def sequence(target: str, key: str = "0", new: str = "7.0") -> Mapping[str, str]:
    return {
        **item(target, key, new),
        "insert": f"{target}.insert({key}, {new})",
        "reverse": f"{target}.append({new})\n{target}.reverse()",
        "clear and extend": f"{target}.clear()\n{target}.extend([{new}])",
    }


def _assigned(**ways: str) -> Mapping[str, str]:
    return {name.replace("_", " "): way for name, way in ways.items()}


NAMES = (
    Reading("a global", "X = 2.0", "X", {
        "assign": "X = 7.0", "globals()": "globals()['X'] = 7.0", "exec": "exec('X = 7.0', globals())",
        "an int": "X = 7", "a bool": "X = True", "a tensor": "X = torch.tensor(7.0)", "a complex of one part": "X = complex(7)",
        "an array": "X = np.float32(7.0)", "delete": "del X", "None": "X = None", "nan": "X = float('nan')", "-0.0": "X = -0.0",
    }),
    Reading("a global that hides a builtin", "", "2.0 if max(1, 2) == 2 else 7.0", {"define": "def max(*a):\n    return 1"}),
    Reading("a global that was absent", "", "value", {"appears": "X = 7.0", "appears and goes": "X = 7.0\ndel X\nX = 5.0"},
            body="try:\n    value = X\nexcept NameError:\n    value = 2.0"),
    Reading("a name in globals()", "", "globals().get('LATER', 2.0)", {"appears": "LATER = 7.0"}),
    Reading("'name' in globals()", "", "7.0 if 'LATER' in globals() else 2.0", {"appears": "LATER = None"}),
    Reading("a closure", "", "x", {"assign": "put(7.0)", "through the cell":
            "next(c for f in (user, call) if f for c in f.__closure__ or () if c.cell_contents == 2.0).cell_contents = 7.0"},
            local="x = 2.0\ndef put(new):\n    nonlocal x\n    x = new\nglobals()['put'] = put", is_direct=True,
            hosts=("message", "reduce function", "apply_edges", "apply_nodes", "of= of vgraph.reduce")),
    Reading("a closure of two levels", "", "read()", {"assign": "put(7.0)"}, is_direct=True,
            local="x = 2.0\ndef read():\n    return (lambda: x)()\ndef put(new):\n    nonlocal x\n    x = new\nglobals()['put'] = put"),
    Reading("a closure that is empty at first", "", "value", {"assign": "put(7.0)"}, is_direct=True,
            body="try:\n    value = x\nexcept NameError:\n    value = 2.0",
            local="def put(new):\n    nonlocal x\n    x = new\nglobals()['put'] = put\nif len(sys.argv) < 0:\n    x = 0"),
    Reading("a default", "", "x", {"__defaults__": "user.__defaults__ = (7.0,)"}, params=", x=2.0", is_direct=True),
    Reading("a keyword's default", "", "x", {"__kwdefaults__": "user.__kwdefaults__ = {'x': 7.0}",
            "in place": "user.__kwdefaults__['x'] = 7.0"}, params=", *, x=2.0", is_direct=True),
    Reading("a default that is a list", "", "x[0]", {"in place": "user.__defaults__[0][0] = 7.0"}, params=", x=[2.0]",
            is_direct=True),
    Reading("a function's code", "def read():\n    return 2.0\ndef other():\n    return 7.0", "read()", {
        "__code__": "read.__code__ = other.__code__", "assign": "read = other", "a lambda": "read = lambda: 7.0",
        "a builtin": "read = functools.partial(float, 7)", "exec": "exec('def read():\\n    return 7.0', globals())"}),
    Reading("a function's default", "def read(x=2.0):\n    return x", "read()", {"__defaults__": "read.__defaults__ = (7.0,)"}),
    Reading("a function's attribute", "def read():\n    return read.x\nread.x = 2.0", "read()", through_dict("read", "x")),
    Reading("a function's attribute by getattr", "def read():\n    return getattr(read, 'x', 2.0)", "read()",
            attribute("read", "x")),
    Reading("a partial's argument", "read = functools.partial(lambda x, y: x * y, 2.0, y=1.0)", "read()", {
        "assign": "read = functools.partial(read.func, 7.0, y=1.0)", "keywords": "read.keywords['y'] = 3.5",
        "__setstate__": "read.__setstate__((read.func, (7.0,), {'y': 1.0}, {}))"}),
    Reading("a function in functools.lru_cache", "X = 2.0\n@functools.lru_cache\ndef read():\n    return X", "read()", {
        "stays": "X = 7.0", "cache_clear": "X = 7.0\nread.cache_clear()"}),
    Reading("a cached property", "class T:\n    x = 2.0\n    @functools.cached_property\n    def y(self):\n        return self.x\nt = T()",
            "t.y", {"stays": "t.x = 7.0", "forget": "t.x = 7.0\nt.__dict__.pop('y', None)", "set": "t.y = 7.0"}),
    Reading("functools.singledispatch", "@functools.singledispatch\ndef read(x):\n    return 2.0", "read(1)", {
        "register": "read.register(int, lambda x: 7.0)"}),
    Reading("an operator's getter", "t = types.SimpleNamespace(x=2.0)\nread = operator.attrgetter('x')", "read(t)", {
        "object": "t.x = 7.0", "getter": "t.y = 7.0\nread = operator.attrgetter('y')"}),
)  # fmt: skip

_CLASS = "class T:\n    x = 2.0\nt = T()"
_POINT = "@dataclasses.dataclass\nclass Point:\n    x: float = 2.0\npoint = Point()"
OBJECTS = (
    Reading("an attribute", "class T:\n    def __init__(self):\n        self.x = 2.0\nt = T()", "t.x", {
        **through_dict("t", "x"), "another object": "other = T()\nother.x = 7.0\nt = other", "delete": "del t.x",
        "replace __dict__": "t.__dict__ = {'x': 7.0}"}),
    Reading("a chain of attributes", "t = types.SimpleNamespace(a=types.SimpleNamespace(b=types.SimpleNamespace(x=2.0)))",
            "t.a.b.x", {**attribute("t.a.b", "x"), "in the middle": "t.a = types.SimpleNamespace(b=types.SimpleNamespace(x=7.0))"}),
    Reading("a class variable", _CLASS, "t.x", {
        **attribute("T", "x"), "hidden by the instance": "t.x = 7.0", "type.__setattr__": "type.__setattr__(T, 'x', 7.0)",
        "another class": "t.__class__ = type('U', (), {'x': 7.0})", "delete": "del T.x"}),
    Reading("a class variable by the class", _CLASS, "T.x", {**attribute("T", "x"), "another class": "T = type('T', (), {'x': 7.0})"}),
    Reading("a base's variable", "class B:\n    x = 2.0\nclass T(B):\n    pass\nt = T()", "t.x", {
        **attribute("B", "x"), "hidden by the class": "T.x = 7.0", "__bases__": "class C:\n    x = 7.0\nclass D(C): pass\nT.__bases__ = (C,)"}),
    Reading("a metaclass's variable", "class M(type):\n    x = 2.0\nclass T(metaclass=M):\n    pass", "T.x", {
        **attribute("M", "x"), "hidden by the class": "T.x = 7.0"}),
    Reading("a method", "class T:\n    def read(self):\n        return 2.0\nt = T()", "t.read()", {
        "of the class": "T.read = lambda self: 7.0", "of the instance": "t.read = lambda: 7.0",
        "of the instance by MethodType": "t.read = types.MethodType(lambda self: 7.0, t)",
        "of a base": "class B:\n    pass\ndel T.read\nT.__getattr__ = lambda self, name: lambda: 7.0",
        "__class__": "t.__class__ = type('U', (T,), {'read': lambda self: 7.0})",
        "its code": "T.read.__code__ = (lambda self: 7.0).__code__"}),
    Reading("an inherited method", "class B:\n    def read(self):\n        return 2.0\nclass T(B):\n    pass\nt = T()", "t.read()", {
        "of the base": "B.read = lambda self: 7.0", "of the class": "T.read = lambda self: 7.0",
        "of the instance": "t.read = lambda: 7.0", "of another instance": "T().read = lambda: 7.0"}),
    Reading("a method that another instance shares", "class T:\n    def read(self):\n        return 2.0\nt, u = T(), T()",
            "t.read() * u.read() / 2", {"of the second": "u.read = lambda: 7.0", "of the first": "t.read = lambda: 7.0",
            "of both": "T.read = lambda self: 7.0"}),
    Reading("super()", "class B:\n    def read(self):\n        return 2.0\nclass T(B):\n    def read(self):\n        return super().read()\nt = T()",
            "t.read()", {"of the base": "B.read = lambda self: 7.0", "of the instance": "t.read = lambda: 7.0"}),
    Reading("__call__", "class T:\n    def __call__(self):\n        return 2.0\nt = T()", "t()", {
        "of the class": "T.__call__ = lambda self: 7.0", "of the instance changes nothing": "t.__call__ = lambda: 7.0",
        "__class__": "t.__class__ = type('U', (), {'__call__': lambda self: 7.0})"}),
    Reading("a property", "class T:\n    y = 2.0\n    @property\n    def x(self):\n        return self.y\nt = T()", "t.x", {
        "what it reads": "t.y = 7.0", "another": "T.x = property(lambda self: 7.0)", "a value": "T.x = 7.0",
        "of the class": "T.y = 7.0"}),
    Reading("a descriptor's state", "class D:\n    def __get__(self, owner, kind=None):\n        return self.x\nd = D()\nd.x = 2.0\nclass T:\n    y = d\nt = T()",
            "t.y", {**attribute("d", "x"), "another": "T.y = 7.0", "__get__": "D.__get__ = lambda self, owner, kind=None: 7.0"}),
    Reading("a descriptor by owner", "STORE = {}\nclass D:\n    def __get__(self, owner, kind=None):\n        return STORE.get(id(owner), 2.0)\nclass T:\n    y = D()\nt = T()",
            "t.y", {"store": "STORE[id(t)] = 7.0"}),
    Reading("slots", "class T:\n    __slots__ = ('x',)\nt = T()\nt.x = 2.0", "t.x", {**attribute("t", "x"), "delete": "del t.x",
            "object.__setattr__": "object.__setattr__(t, 'x', 7.0)"}),
    Reading("slots by getattr", "class T:\n    __slots__ = ('x',)\nt = T()", "getattr(t, 'x', 2.0)", attribute("t", "x")),
    Reading("a slot that is empty at first", "class T:\n    __slots__ = ('x',)\nt = T()", "value", attribute("t", "x"),
            body="try:\n    value = t.x\nexcept AttributeError:\n    value = 2.0"),
    Reading("__getattr__", "class T:\n    def __getattr__(self, name):\n        return STORE[name]\nSTORE = {'x': 2.0}\nt = T()", "t.x", {
        "what it reads": "STORE['x'] = 7.0", "of the class": "T.x = 7.0", "of the instance": "t.x = 7.0",
        "another": "T.__getattr__ = lambda self, name: 7.0"}),
    Reading("__getattribute__", "class T:\n    def __getattribute__(self, name):\n        return STORE[name]\nSTORE = {'x': 2.0}\nt = T()", "t.x", {
        "what it reads": "STORE['x'] = 7.0", "another": "T.__getattribute__ = lambda self, name: 7.0"}),
    Reading("__getitem__", "class T:\n    x = 2.0\n    def __getitem__(self, key):\n        return self.x\nt = T()", "t['x']", {
        "what it reads": "t.x = 7.0", "another": "T.__getitem__ = lambda self, key: 7.0"}),
    Reading("__len__", "class T:\n    n = 2\n    def __len__(self):\n        return self.n\nt = T()", "float(len(t))", attribute("t", "n", "7")),
    Reading("__bool__", "class T:\n    n = True\n    def __bool__(self):\n        return self.n\nt = T()", "2.0 if t else 7.0",
            attribute("t", "n", "False")),
    Reading("__eq__", "class T:\n    n = 1\n    def __eq__(self, other):\n        return self.n == other\n    __hash__ = None\nt = T()",
            "2.0 if t == 1 else 7.0", attribute("t", "n", "3")),
    Reading("__contains__", "class T:\n    n = 1\n    def __contains__(self, other):\n        return self.n == other\nt = T()",
            "2.0 if 1 in t else 7.0", attribute("t", "n", "3")),
    Reading("__float__", "class T:\n    x = 2.0\n    def __float__(self):\n        return self.x\nt = T()", "float(t)", attribute("t", "x")),
    Reading("__index__", "class T:\n    x = 2\n    def __index__(self):\n        return self.x\nt = T()", "float(range(10)[t])", attribute("t", "x", "7")),
    Reading("__iter__", "class T:\n    xs = (2.0,)\n    def __iter__(self):\n        return iter(self.xs)\nt = T()", "sum(t)",
            attribute("t", "xs", "(3.0, 4.0)")),
    Reading("__enter__", "class T:\n    x = 2.0\n    def __enter__(self):\n        return self.x\n    def __exit__(self, *a):\n        pass\nt = T()",
            "value", attribute("t", "x"), body="with t as value:\n    pass"),
    Reading("an attribute that was absent", "class T:\n    pass\nt = T()", "t.x if hasattr(t, 'x') else 2.0", {
        "of the instance": "t.x = 7.0", "of the class": "T.x = 7.0", "of a base": "T.__bases__\nt.__class__ = type('U', (T,), {'x': 7.0})",
        "__getattr__": "T.__getattr__ = lambda self, name: 7.0"}),
    Reading("an attribute by getattr", "class T:\n    pass\nt = T()", "getattr(t, 'x', 2.0)", {
        "of the instance": "t.x = 7.0", "of the class": "T.x = 7.0"}),
    Reading("an attribute behind except", "class T:\n    pass\nt = T()", "value", {"of the instance": "t.x = 7.0", "of the class": "T.x = 7.0"},
            body="try:\n    value = t.x\nexcept AttributeError:\n    value = 2.0"),
    Reading("a name put together", "t = types.SimpleNamespace(x=2.0, y=7.0, which='x')", "getattr(t, t.which)", {
        "name": "t.which = 'y'", "value": "t.x = 7.0"}),
    Reading("type()", "class A:\n    pass\nclass B:\n    pass\nt = A()", "2.0 if type(t) is A else 7.0", {
        "__class__": "t.__class__ = B", "another object": "t = B()"}),
    Reading("isinstance", "class A:\n    pass\nclass B(A):\n    pass\nt = B()", "2.0 if isinstance(t, B) else 7.0", {
        "__class__": "t.__class__ = A", "the class": "B = type('B', (), {})",
        "__instancecheck__": "class M(type):\n    def __instancecheck__(c, i):\n        return False\nB = M('B', (), {})"}),
    Reading("is", "KEY = object()\nt = KEY", "2.0 if t is KEY else 7.0", {"one": "t = object()", "other": "KEY = object()"}),
    Reading("id()", "T = [object(), object()]\nt = T[0]", "2.0 if id(t) == id(T[0]) else 7.0", {"assign": "t = T[1]"}),
    Reading("hash()", "class T:\n    n = 1\n    def __hash__(self):\n        return self.n\nt = T()", "2.0 if hash(t) == 1 else 7.0",
            attribute("t", "n", "5")),
    Reading("callable()", "class T:\n    pass\nt = T()", "7.0 if callable(t) else 2.0", {"of the class": "T.__call__ = lambda self: 1"}),
    Reading("dir()", "t = types.SimpleNamespace(x=1)", "float(2 + 5 * ('y' in dir(t)))", {"set": "t.y = 1"}),
    Reading("vars()", "t = types.SimpleNamespace(x=2.0)", "sum(vars(t).values())", {"assign": "t.x = 7.0", "one more": "t.y = 5.0"}),
    Reading("a dataclass", _POINT, "point.x", {**through_dict("point", "x"), "replace": "point = dataclasses.replace(point, x=7.0)"}),
    Reading("a frozen dataclass", _POINT.replace("dataclass\n", "dataclass(frozen=True)\n"), "point.x", {
        "replace": "point = dataclasses.replace(point, x=7.0)", "object.__setattr__": "object.__setattr__(point, 'x', 7.0)"}),
    Reading("a dataclass's default", _POINT, "Point().x", {"init": "Point.__init__.__defaults__ = (7.0,)",
            "post_init": "Point.__post_init__ = lambda self: setattr(self, 'x', 7.0)\nPoint = dataclasses.dataclass(type('Point', (), {'x': 7.0, '__annotations__': {'x': float}}))"}),
    Reading("an object made inside", "class T:\n    def __init__(self):\n        self.x = X\nX = 2.0", "T().x", {
        "what it reads": "X = 7.0", "__init__": "T.__init__ = lambda self: setattr(self, 'x', 7.0)",
        "__new__": "class U:\n    x = 7.0\nT.__new__ = lambda c: U()"}),
    Reading("a weak reference", "class T:\n    x = 2.0\nkept = T()\nref = weakref.ref(kept)", "ref().x if ref() else 5.0", {
        "object": "kept.x = 7.0", "dead": "kept = None", "another": "kept2 = T()\nkept2.x = 7.0\nref = weakref.ref(kept2)"}),
    Reading("a weak dictionary", "class T:\n    pass\nkept = T()\nW = weakref.WeakKeyDictionary({kept: 2.0})", "W.get(kept, 5.0)", {
        "assign": "W[kept] = 7.0", "delete": "del W[kept]"}),
    Reading("a weak set", "class T:\n    pass\nkept = T()\nW = weakref.WeakSet([kept])", "2.0 if kept in W else 7.0", {"discard": "W.discard(kept)"}),
    Reading("a proxy", "class T:\n    x = 2.0\nkept = T()\np = weakref.proxy(kept)", "p.x", {"object": "kept.x = 7.0"}),
)  # fmt: skip
PYTHON = (*NAMES, *OBJECTS)
