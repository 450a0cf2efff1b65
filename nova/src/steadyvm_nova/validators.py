"""Extra specs of the namespace ``rt:``, for nova's API: a wrong value is refused when the flavor is set."""

from __future__ import annotations

from typing import Any

from nova import exception
from nova.api.validation.extra_specs import base

from . import interface

_DESCRIPTIONS = {
    interface.BUDGET: "Execution time of all VCPUs together in each period, in microseconds or with us, ms.",
    interface.VCPU_BUDGET: "Execution time of each VCPU in each period, in microseconds or with us, ms.",
    interface.PERIOD: "Period of each VCPU's budget, in microseconds or with us, ms.",
    interface.TASKS: "Tasks of the VM, 'C/T' or 'C/D/T' each, from which the budget is computed.",
}


class _RtValidator(base.ExtraSpecValidator):  # type: ignore[misc]
    """nova's own messages quote a regular expression; ours say what to write."""

    def validate(self, name: str, value: str) -> None:
        try:
            interface.check_value(name, value)
        except interface.SpecError as error:
            raise exception.ValidationError(f"Validation failed; {error}.") from error


def register() -> list[Any]:
    """The entry point ``nova.api.extra_spec_validators`` calls this."""
    return [
        _RtValidator(name=name, description=description, value={"type": str})
        for name, description in _DESCRIPTIONS.items()
    ]
