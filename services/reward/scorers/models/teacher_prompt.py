"""What a teacher reads in place of the policy's prompt: a text with columns of the row that the policy never sees.

Self-distillation with privileged information: arXiv 2601.18734 (OPSD) and 2601.19897 (SDFT).
"""

from collections.abc import Mapping
from pathlib import Path
from string import Template

import numpy as np

from headrace.services.reward.scorers.models.passes import TokenIds
from headrace.wire.errors import ConfigError, DataError
from headrace.wire.rendering.chat_template import ChatTemplate
from headrace.wire.rendering.messages import in_form, tools_of
from headrace.wire.rendering.tokenizers import load_tokenizer


class TeacherPrompt:
    """A template with places for the prompt and for columns of its row, and the teacher's tokenizer."""

    def __init__(self, template: str, path: Path, component: str) -> None:
        """Loads the tokenizer. Raises ConfigError, also for a template without `$prompt`."""
        self._template = Template(template)
        if not self._template.is_valid() or "prompt" not in self._template.get_identifiers():
            raise ConfigError(f"{component}: options.template: give $prompt a place, and write $$ for a dollar sign")
        try:
            self._tokenizer = load_tokenizer(path)
        except ConfigError as error:
            raise ConfigError(f"{component}: options.template needs a tokenizer in {path}: {error}") from error
        self._chat = ChatTemplate(self._tokenizer) if getattr(self._tokenizer, "chat_template", None) else None

    def ids(self, prompt: str, columns: Mapping[str, object]) -> TokenIds:
        """int32 [prompt]: the last message of the user, or a prompt of text, in the template.

        Raises DataError naming a column that the row lacks, and for a prompt that cannot be rendered.
        """
        messages = columns.get("prompt_messages")
        if isinstance(messages, list) and self._chat is not None:
            messages = in_form(messages)
            places = [place for place, one in enumerate(messages) if one["role"] == "user"]
            if not places:
                raise DataError("options.template is for a message of the user, and the prompt has none")
            last = messages[places[-1]]
            messages[places[-1]] = {**last, "content": self._filled(str(last["content"]), columns)}
            return self._chat.context(messages, tools_of(columns.get("tools")), None).token_ids
        if messages or self._chat is not None:
            raise DataError(
                "options.template needs messages as prompts where the teacher has a chat template, and text where "
                "it has none: give the data messages, or the teacher the policy's chat_template.jinja"
            )
        return np.array(self._tokenizer(self._filled(prompt, columns))["input_ids"], np.int32)

    def _filled(self, prompt: str, columns: Mapping[str, object]) -> str:
        given = {name: columns.get(name) for name in self._template.get_identifiers()} | {"prompt": prompt}
        if absent := [name for name, value in given.items() if value in (None, "") and name != "prompt"]:
            raise DataError(f"options.template names the column {absent[0]!r}, which is missing or empty")
        return self._template.substitute(given)
