"""Language models as the training step needs them: modules whose forward pass gives scores or values.

The heads' products are inside `forward`, so that a backend that shards weights gathers them with the rest.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property, partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers.modeling_utils import PreTrainedModel

from headrace.services.trainer.algorithms.logprobs import KeptIds, TokenScores, token_logprobs
from headrace.services.trainer.distributed.context import ContextGroup, share_attention
from headrace.services.trainer.model.deferred import Deferred
from headrace.services.trainer.model.layout import Layout, model_layout, plain_layout
from headrace.services.trainer.model.lora import adapter_parameters, adapters_off, merged_state
from headrace.services.trainer.throughput.shape import compute_shape
from headrace.wire.config.settings import LoraTable


class TrainedModule(nn.Module):
    """A transformers model, with what backends and exports need of it."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        forward_dtype: torch.dtype,
        lora: LoraTable | None = None,
        deferred: Deferred | None = None,
    ) -> None:
        """`lora`: the model has these adapters, and only they are trained. `deferred`: its weights are not read yet."""
        super().__init__()
        self.model = model
        self.deferred = deferred
        self.context: ContextGroup | None = None
        """The ranks over which the tokens of a row are divided."""
        self.lora = lora if lora is not None and lora.rank else None
        self.forward_dtype = forward_dtype
        self._adapters = plain_layout(adapter_parameters(model)) if self.lora else None
        # Before a backend shards the weights.
        self.compute = compute_shape(self.body, self.head, model.config.get_text_config())

    @cached_property
    def layout(self) -> Layout:
        """What is published, under which names and in which shapes; adapters alone, if they alone are trained.

        Raises ConfigError for a model that cannot be published whole.
        """
        return model_layout(self.model) if self._adapters is None else self._adapters

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        found: torch.device = next(self.model.parameters()).device
        return found

    @property
    def quantized(self) -> bool:
        """Whether the frozen weights are in 4 bits: then the adapters are all that is saved, published or exported."""
        return self.lora is not None and self.lora.quantize != "none"

    @property
    def body(self) -> nn.Module:
        """The decoder: all but the head."""
        raise NotImplementedError

    @property
    def head(self) -> Float[Tensor, "out hidden"]:
        """The head's weight (a policy's is the embedding's own if they are tied)."""
        raise NotImplementedError

    def share_tokens(self, context: ContextGroup) -> None:
        """Divides the tokens of each row over the ranks of `context`. Raises ConfigError if attention cannot be."""
        self._undivided = self.model.config._attn_implementation
        share_attention(self.model, context)
        self.context = context

    @contextmanager
    def whole_rows(self) -> Iterator[None]:
        """Within it each rank computes whole rows."""
        context, shared = self.context, self.model.config._attn_implementation
        self.context = None
        self.model.set_attn_implementation(self._undivided)
        try:
            yield
        finally:
            self.context = context
            self.model.set_attn_implementation(shared)

    def layers(self) -> list[nn.Module]:
        """The decoder's layers in their order: the units of sharding."""
        return layers_of(self.body)

    def hidden(
        self,
        token_ids: Int[Tensor, "rows seq"],
        positions: Int[Tensor, "rows seq"] | None = None,
        bounds: Int[Tensor, " borders"] | None = None,
    ) -> Float[Tensor, "rows seq hidden"]:
        """Hidden states before the head, of this rank's part of the rows if their tokens are divided.

        Rows begin at position 0; padding at their end changes nothing before it.

        `positions`: where a row holds several sequences, each token's place in its own. That attention does not cross
        them depends on the family (see `headrace.services.trainer.stages.offline.packing_check`). `bounds`: where the
        sequences of one row begin, and its end, for families whose layers need these bounds.
        """
        low = self.forward_dtype == torch.bfloat16
        if self.context is not None:
            assert positions is None and bounds is None, "packed rows are not divided"
            token_ids, positions = self.context.part(token_ids)
        packed: dict[str, Tensor | int] = {} if positions is None else {"position_ids": positions}
        if bounds is not None:
            packed |= _sequences(bounds)
        with torch.autocast(token_ids.device.type, dtype=torch.bfloat16, enabled=low):
            states = self.body(input_ids=token_ids, use_cache=False, **packed).last_hidden_state
        assert isinstance(states, Tensor)
        return states.to(self.forward_dtype) if low else states

    def named_weights(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Trained parameters in the model's order, each once, under their names in memory; adapters as in their file.

        What is published has other names in some families: see `layout`.
        """
        yield from adapter_parameters(self.model) if self.lora else self.model.named_parameters()

    def whole_state(self) -> dict[str, Tensor]:
        """Returns the state dict with adapters merged; empty for a model in 4 bits, into which nothing is merged."""
        return {} if self.quantized else self.export_state(self.model.state_dict())

    def export_state(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns what is exported of a state dict of whole tensors: adapters are merged into the rest."""
        return merged_state(self.model, state) if self.lora else state


class Policy(TrainedModule):
    """A causal language model. Its forward pass scores tokens."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        forward_dtype: torch.dtype,
        lora: LoraTable | None = None,
        fp32_head: bool = False,
        deferred: Deferred | None = None,
    ) -> None:
        """As in `TrainedModule`. `fp32_head`: logits are float32 in a bfloat16 forward pass too."""
        super().__init__(model, forward_dtype=forward_dtype, lora=lora, deferred=deferred)
        self.fp32_head = fp32_head
        self.vocab = int(self.head.shape[0])

    @property
    def body(self) -> nn.Module:
        """The model's decoder."""
        found = self.model.get_decoder()
        assert isinstance(found, nn.Module)
        return found

    @property
    def head(self) -> Float[Tensor, "vocab hidden"]:
        """Weight [vocab, hidden] of the model's output embeddings."""
        weight = self.model.get_output_embeddings().weight
        assert isinstance(weight, Tensor)
        return weight

    def forward(
        self,
        token_ids: Int[Tensor, "rows seq"],
        rows: Int[Tensor, " tokens"],
        places: Int[Tensor, " tokens"],
        targets: Int[Tensor, " tokens"],
        temperature: Float[Tensor, " tokens"],
        chunk: int,
        positions: Int[Tensor, "rows seq"] | None = None,
        bounds: Int[Tensor, " borders"] | None = None,
        kept: KeptIds | None = None,
    ) -> TokenScores:
        """Logprobs (nats) and entropy of `targets`, each predicted by the hidden state at its row and place.

        `positions` and `bounds` as in `hidden`, `kept` as in `token_logprobs`.
        """
        states = self.hidden(token_ids, positions, bounds)
        score = partial(token_logprobs, chunk=chunk, fp32_head=self.fp32_head)
        if self.context is None:
            return score(states[rows, places], self.head, targets, temperature=temperature, kept=kept)
        own, places = self.context.own(places, token_ids.shape[1])
        kept = None if kept is None else kept.of(own)
        scores = score(states[rows[own], places], self.head, targets[own], temperature=temperature[own], kept=kept)
        return TokenScores(*(self.context.join(one, own) for one in scores))

    def adapters_off(self) -> AbstractContextManager[None]:
        """Within it the model computes without its adapters: a reference that costs no memory."""
        return adapters_off(self.model) if self.lora else nullcontext()


class ValueModel(TrainedModule):
    """A language model with a linear head named `score`: the critic, or a reward model."""

    def __init__(self, model: PreTrainedModel, *, forward_dtype: torch.dtype, deferred: Deferred | None = None) -> None:
        """`model`: one of transformers' `*ForSequenceClassification`, whose labels are the outputs."""
        super().__init__(model, forward_dtype=forward_dtype, deferred=deferred)
        self.outputs = int(self.head.shape[0])

    @property
    def body(self) -> nn.Module:
        """The classifier's base model."""
        found = self.model.base_model
        assert isinstance(found, nn.Module)
        return found

    @property
    def head(self) -> Float[Tensor, "outputs hidden"]:
        """Weight [outputs, hidden] of the linear head `score`."""
        weight = self.model.score.weight
        assert isinstance(weight, Tensor)
        return weight

    def forward(
        self, token_ids: Int[Tensor, "rows seq"], rows: Int[Tensor, " tokens"], places: Int[Tensor, " tokens"]
    ) -> Float[Tensor, "tokens outputs"]:
        """The head's outputs at the given places: float32 (float64 stays)."""
        states = self.hidden(token_ids)
        wide = torch.float64 if states.dtype == torch.float64 else torch.float32
        if self.context is None:
            return F.linear(states[rows, places].to(wide), self.head.to(wide))
        own, places = self.context.own(places, token_ids.shape[1])
        return self.context.join(F.linear(states[rows[own], places].to(wide), self.head.to(wide)), own)


def layers_of(body: nn.Module) -> list[nn.Module]:
    """The layers of a decoder in their order: its longest list of modules."""
    lists = [list(module) for module in body.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=len, default=[])


def _sequences(bounds: Int[Tensor, " borders"]) -> dict[str, Tensor | int]:
    """What transformers' layers may need of one row's sequences: for attention, convolutions, recurrences."""
    bounds = bounds.to(torch.int32)
    lengths = bounds.diff()
    longest = int(lengths.max())
    numbers = torch.arange(len(lengths), dtype=torch.int32, device=bounds.device)
    return {
        "cu_seq_lens_q": bounds,
        "cu_seq_lens_k": bounds,
        "max_length_q": longest,
        "max_length_k": longest,
        "seq_idx": numbers.repeat_interleave(lengths.long())[None],
    }
