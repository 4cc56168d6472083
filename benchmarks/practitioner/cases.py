"""The cases by name."""

from collections.abc import Callable

import huggingface
import images
import sequences
import tables
from case import Case

CASES: dict[str, Callable[[], Case]] = {
    make.__name__: make
    for make in (
        tables.mlp,
        images.cnn,
        images.vit_tiny,
        sequences.lstm,
        sequences.transformer,
        huggingface.bert_ids,
        huggingface.gpt2_ids,
        huggingface.lora_by_hand,
    )
}
