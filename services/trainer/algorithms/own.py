"""Functions of the user's own in the place of a part: `algorithm.advantage = "module:function"`. Imports no torch.

An estimator is `function(signals: Signals) -> Estimate`, a policy loss `function(tokens: PolicyTokens) -> PolicyLoss`.
What they return is checked at every call: an error in it names the function and what it gave.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.services.trainer.algorithms.algorithm import Estimate, PolicyLoss, PolicyTokens, Signals
from headrace.wire.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor


def is_own(name: str) -> bool:
    """Whether a key names a function of the user's own rather than a declared part."""
    return ":" in name


def import_function(target: str) -> Callable[..., object]:
    """The function `module:function`; raises ConfigError naming it, and file and line of what failed."""
    module_name, _, function_name = target.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), function_name)):
        raise ConfigError(f"{target!r} names no function; write module:function")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name not in (module_name, module_name.partition(".")[0]):
            raise ConfigError(f"{target}: {_where(error)}{error}") from error
        raise ConfigError(f"{target}: {error}; put the folder of the module into algorithm.path") from error
    except Exception as error:  # Importing runs the user's code: it may raise anything.
        raise ConfigError(f"{target}: {_where(error)}{type(error).__name__}: {error}") from error
    function: object = vars(module).get(function_name)
    if not callable(function):
        lacks = "is not a function" if function_name in vars(module) else "does not exist"
        raise ConfigError(f"{target}: {function_name} {lacks} in {module.__file__}")
    return function


def checked_estimator(target: str, *, returns: bool) -> Callable[[Signals], Estimate]:
    """The estimator `target`; `returns`: it must give them."""
    function = import_function(target)

    def estimate(signals: Signals) -> Estimate:
        made = _called(target, function, signals)
        if not isinstance(made, Estimate):
            raise ConfigError(f"{target} returned {_kind(made)}, must return an Estimate")
        tokens = int(signals.lengths.sum())
        _check(target, "Estimate.advantages", made.advantages, tokens)
        if returns or made.returns is not None:
            _check(target, "Estimate.returns", made.returns, tokens)
        return made

    return estimate


def checked_loss(target: str) -> Callable[[PolicyTokens], PolicyLoss]:
    """The policy loss `target`."""
    function = import_function(target)

    def policy_loss(tokens: PolicyTokens) -> PolicyLoss:
        made = _called(target, function, tokens)
        if not isinstance(made, PolicyLoss):
            raise ConfigError(f"{target} returned {_kind(made)}, must return a PolicyLoss")
        count = len(tokens.logprobs)
        # A gradient that is not finite skips the step, as with any loss: looking at each value would stall a GPU.
        _check(target, "PolicyLoss.per_token", made.per_token, count, finite=False)
        _check(target, "PolicyLoss.kl", made.kl, count, finite=False)
        _check_shape(target, "PolicyLoss.clipped", made.clipped, count)
        return made

    return policy_loss


def _called(target: str, function: Callable[..., object], argument: object) -> object:
    try:
        return function(argument)
    except Exception as error:  # The user's code may raise anything.
        raise ConfigError(f"{target}: {_where(error)}{type(error).__name__}: {error}") from error


def _check(target: str, name: str, value: object, tokens: int, *, finite: bool = True) -> None:
    found = _check_shape(target, name, value, tokens)
    if not found.is_floating_point():
        raise ConfigError(f"{target}: {name} has dtype {found.dtype}, must be a float")
    if finite:
        check_finite(target, name, found)


def check_finite(target: str, name: str, values: Tensor) -> None:
    """Raises ConfigError naming the first of the values [tokens] that is not finite."""
    if not bool(values.isfinite().all()):
        place = int((~values.isfinite()).nonzero()[0, 0])
        raise ConfigError(f"{target}: {name} is {float(values[place])} at token {place}, must be finite")


def _check_shape(target: str, name: str, value: object, tokens: int) -> Tensor:
    from torch import Tensor

    if not isinstance(value, Tensor):
        raise ConfigError(f"{target}: {name} is {_kind(value)}, must be a Tensor of shape [{tokens}], one a token")
    if value.shape != (tokens,):
        raise ConfigError(f"{target}: {name} has shape {list(value.shape)}, must have [{tokens}], one a token")
    return value


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _where(error: Exception) -> str:
    """File and line in the user's code, where there is one."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: "
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    own = [frame for frame in frames if frame.filename != __file__]
    return f"{own[0].filename}:{own[0].lineno}: " if own else ""
