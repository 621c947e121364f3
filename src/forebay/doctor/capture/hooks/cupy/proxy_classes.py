"""Proxy classes: subclasses that replace compiled classes, whose methods Python cannot replace."""

import copyreg
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from forebay.doctor.capture.ledger import Ledger
from forebay.doctor.capture.patches import Patches, make_hook
from forebay.doctor.model.events import EventKind

__all__ = ["hook_class"]

DescribeResult = Callable[[Any], dict[str, Any] | None]  # result of a call -> details of its event


def hook_class(
    patches: Patches,
    owner: Any,
    name: str,
    api: str,
    methods: Mapping[str, EventKind],
    *,
    describe_created: DescribeResult | None = None,
) -> None:
    """Replace the class `owner.name` by a proxy class that records calls of `methods`.

    Calls on objects that exist already are not recorded. With `describe_created`, the proxy class also records the
    creation of objects.
    """
    hooks = _MethodHooks(patches, api)

    def make_proxy_class(original: Any) -> Any:
        attributes: dict[str, Any] = {
            method: hooks.wrap(getattr(original, method), kind) for method, kind in methods.items()
        }
        if describe_created is not None:
            wrap_creation = partial(hooks.wrap, kind=EventKind.BUILD, describe=describe_created)
            attributes["_wrap_creation"] = staticmethod(wrap_creation)
        return _make_proxy_class(original, attributes)

    patches.replace(owner, name, make_proxy_class, api=api)


class _MethodHooks:
    """Makes the hooks of one API, and switches them off when profiling ends.

    Objects of a proxy class may outlive the profiling, and their hooks cannot be removed.
    """

    def __init__(self, patches: Patches, api: str) -> None:
        self._ledger: Ledger = patches.ledger
        self._api = api
        self._is_on = True
        patches.add_undo(self._switch_off, api=api)

    def wrap(self, original: Any, kind: EventKind, describe: DescribeResult = lambda _: None) -> Callable[..., Any]:
        ledger, api = self._ledger, self._api

        def write(start: int, end: int, result: Any, *_: Any) -> None:
            ledger.write((kind, api, ledger.lines.current_line()), start, end, detail=describe(result))

        return make_hook(ledger, api, original, write, lambda *_, **__: self._is_on)

    def _switch_off(self) -> None:
        self._is_on = False


class _ProxyMeta(type):
    """Metaclass of proxy classes.

    Instances and subclasses of the original class pass `isinstance` and `issubclass` checks against the proxy class.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Create an object through the creation hook, if the class has one."""
        wrap_creation = vars(cls).get("_wrap_creation")
        create = super().__call__
        return create(*args, **kwargs) if wrap_creation is None else wrap_creation(create)(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.__bases__[0]) if _is_proxy(cls) else super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.__bases__[0]) if _is_proxy(cls) else super().__subclasscheck__(subclass)


def _make_proxy_class(original: Any, attributes: dict[str, Any]) -> type:
    """Return a subclass of `original` with the given attributes."""

    def reduce(self: Any, protocol: Any) -> Any:
        """Pickle this object as an object of the original class.

        So a program without Forebay can load it.
        """
        create, args, *state = original.__reduce_ex__(self, protocol)
        # pickle accepts `__newobj__` only if the first of `args` is the class of the object, which is the proxy class.
        # So call `__new__` of the original class instead.
        uses_new = create is copyreg.__newobj__  # type: ignore[attr-defined]  # missing in typeshed
        create = original.__new__ if uses_new else create
        return (create, tuple(original if arg is type(self) else arg for arg in args), *state)

    return _ProxyMeta(original.__name__, (original,), {"_is_proxy": True, "__reduce_ex__": reduce, **attributes})


def _is_proxy(cls: type) -> bool:
    """Whether `cls` is a proxy class; False for user classes that derive from one."""
    return "_is_proxy" in vars(cls)
