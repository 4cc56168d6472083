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
        *(tables.mlp_plain, tables.mlp_dropout, tables.mlp_batch_norm, tables.mlp_frozen_body),
        *(tables.bias_only, tables.two_inputs, tables.multi_label, tables.regression),
        *(images.cnn, images.wide_resnet_16_4, images.wide_resnet_standardised),
        *(images.wide_resnet_augmented, images.resnet18_batch_norm, images.vit_tiny),
        *(sequences.lstm, sequences.gru, sequences.tied_language_model, sequences.encoder),
        *(sequences.encoder_dropout, sequences.transformer, huggingface.bert_ids),
        *(huggingface.bert_native, huggingface.gpt2_ids, huggingface.gpt2_native),
        *(huggingface.gpt2_language_model, huggingface.lora_by_hand, huggingface.lora_peft),
        *(huggingface.vit_huggingface, images.convnext, images.unet, sequences.audio),
    )
}
