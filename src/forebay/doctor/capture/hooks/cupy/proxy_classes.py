"""Proxies for compiled classes, whose methods cannot be replaced: a subclass takes their place."""

import copyreg
from collections.abc import Callable, Mapping
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
    """Record calls of `methods` on objects created from now on; with `describe_created`, also their creation."""
    hooks = _MethodHooks(patches, api)

    def make(original: Any) -> Any:
        added: dict[str, Any] = {
            method: hooks.wrap(getattr(original, method), kind) for method, kind in methods.items()
        }
        if describe_created is not None:
            added["_hook_creation"] = staticmethod(lambda create: hooks.wrap(create, EventKind.BUILD, describe_created))
        return _make_proxy_class(original, added)

    patches.replace(owner, name, make, api=api)


class _MethodHooks:
    """The hooks of one API. Objects that carry them outlive the session, so the hooks can be switched off."""

    def __init__(self, patches: Patches, api: str) -> None:
        self._ledger: Ledger = patches.ledger
        self._api = api
        self._is_on = True
        patches.add_undo(self._switch_off, api=api)

    def wrap(self, original: Any, kind: EventKind, describe: DescribeResult = lambda _: None) -> Callable[..., Any]:
        ledger, api = self._ledger, self._api

        def write(start: int, end: int, result: Any, *_: Any) -> None:
            ledger.write(kind, api, ledger.lines.current_line(), start, end, detail=describe(result))

        return make_hook(ledger, api, original, write, lambda *_, **__: self._is_on)

    def _switch_off(self) -> None:
        self._is_on = False


class _ProxyMeta(type):
    """Metaclass of proxies: instances and subclasses of the original count as those of the proxy."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        hook_creation = vars(cls).get("_hook_creation")
        create = super().__call__
        return create(*args, **kwargs) if hook_creation is None else hook_creation(create)(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.__bases__[0]) if _is_proxy(cls) else super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.__bases__[0]) if _is_proxy(cls) else super().__subclasscheck__(subclass)


def _make_proxy_class(original: Any, added: dict[str, Any]) -> type:
    def reduce(self: Any, protocol: Any) -> Any:
        """Pickle as the original class, so that a reader needs no Forebay."""
        create, args, *rest = original.__reduce_ex__(self, protocol)
        uses_new = create is copyreg.__newobj__  # type: ignore[attr-defined]  # missing in typeshed
        create = original.__new__ if uses_new else create
        return (create, tuple(original if arg is type(self) else arg for arg in args), *rest)

    return _ProxyMeta(original.__name__, (original,), {"_is_proxy": True, "__reduce_ex__": reduce, **added})


def _is_proxy(cls: type) -> bool:
    """Whether this is a proxy itself; a class that the user derives from it is not."""
    return "_is_proxy" in vars(cls)
