"""Faults of the lower floor that no test had reached: kinds of layers, many parts, other data."""

from fault import Fault, G, P, T, of_kind

OWN, DATA, RESULTS = "tests/private/", "tests/data/", "tests/results/"
_TYPES, _PARTS = G + "test_exact_types.py", G + "test_many_parts.py"
_REFUSED, _SCORES = OWN + "test_refused_models.py", OWN + "test_noisy_scores.py"

_LAYERS = [
    Fault(
        "the options of an embedding of somebody's own are not looked at",
        "gradients/forms.py",
        "if isinstance(layer, nn.Embedding | nn.EmbeddingBag):",
        "if type(layer) in (nn.Embedding, nn.EmbeddingBag):",
        G + "test_layer_refused.py",
    ),
    Fault(
        "the options of a recurrent layer or attention of somebody's own are not looked at",
        "gradients/forms.py",
        "if isinstance(layer, nn.MultiheadAttention | nn.RNNBase):",
        "if type(layer) in (nn.MultiheadAttention, nn.LSTM, nn.GRU, nn.RNN):",
        G + "test_layer_refused.py",
    ),
    Fault(
        "a bag of words may divide by how often the batch has them",
        "gradients/forms.py",
        'for option in ("max_norm", "scale_grad_by_freq", "sparse"):',
        'options = ("max_norm", "scale_grad_by_freq", "sparse")\n'
        "        for option in options[:1] if isinstance(layer, nn.EmbeddingBag) else options:",
        G + "test_layer_refused.py",
    ),
    Fault(
        "little dropout of a recurrent layer passes",
        "gradients/forms.py",
        "if layer.dropout > 0:",
        "if layer.dropout > 0.01:",
        G + "test_layer_refused.py",
    ),
    Fault(
        "a layer that is made of a linear one has its rule",
        "gradients/registry.py",
        "isinstance(layer, nn.Linear) and kind is nn.Linear and inputs.dim() >= 2",
        "isinstance(layer, nn.Linear) and inputs.dim() >= 2",
        _TYPES,
    ),
    Fault(
        "a layer that is made of a convolution has its rule",
        "gradients/registry.py",
        "if kind in (nn.Conv2d, nn.ConvTranspose2d):",
        "if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):",
        _TYPES,
    ),
    Fault(
        "a layer that is made of a convolution over time has its rule",
        "gradients/registry.py",
        "if kind in (nn.Conv1d, nn.ConvTranspose1d):",
        "if isinstance(layer, nn.Conv1d | nn.ConvTranspose1d):",
        _TYPES,
    ),
    Fault(
        "a layer that is made of an embedding has its rule",
        "gradients/registry.py",
        "if kind is nn.Embedding:",
        "if isinstance(layer, nn.Embedding):",
        _TYPES,
    ),
    Fault(
        "a layer that is made of a layer norm has its rule",
        "gradients/registry.py",
        "isinstance(layer, nn.LayerNorm) and kind is nn.LayerNorm:",
        "isinstance(layer, nn.LayerNorm):",
        _TYPES,
    ),
    Fault(
        "a layer that is made of a group norm has its rule",
        "gradients/registry.py",
        "if kind is nn.GroupNorm:",
        "if isinstance(layer, nn.GroupNorm):",
        _TYPES,
    ),
    Fault(
        "of a layer's parameters eight are measured",
        "gradients/kept.py",
        "for gradient in self.gradients.values()]",
        "for gradient in [*self.gradients.values()][:8]]",
        _PARTS,
    ),
    Fault(
        "of a layer's parameters eight are dropped where an example counts for nothing",
        "gradients/kept.py",
        "            name: gradient.masked_fill(bad.view(-1, *[1] * (gradient.dim() - 1)), 0.0)\n"
        "            for name, gradient in self.gradients.items()\n",
        "            name: gradient.masked_fill(\n"
        "                bad.view(-1, *[1] * (gradient.dim() - 1)) & (place < 8), 0.0\n"
        "            )\n"
        "            for place, (name, gradient) in enumerate(self.gradients.items())\n",
        _PARTS,
    ),
    Fault(
        "of a model's layers sixty-four are measured",
        "gradients/batch.py",
        "norms = torch.linalg.vector_norm(by_layer, dim=0)",
        "norms = torch.linalg.vector_norm(by_layer[:64], dim=0)",
        _PARTS,
    ),
]

_OWN = [
    Fault(
        "own model: a hundredth of a layer may drop out",
        "training/own_model.py",
        "layer.training and layer.p > 0:",
        "layer.training and layer.p > 0.1:",
        _REFUSED,
    ),
    Fault(
        "own model: what drops out in another manner is not refused by name",
        "training/own_model.py",
        "if isinstance(layer, _DropoutNd)",
        "if type(layer) is nn.Dropout",
        _REFUSED,
    ),
    Fault(
        "own model: one buffer may change if another stays",
        "training/own_model.py",
        "if not all(torch.equal(one, other)",
        "if before and not any(torch.equal(one, other)",
        _REFUSED,
    ),
    Fault(
        "own model: a target that is left out hides one that ends the training",
        "training/own_model.py",
        "_TRIED = 50",
        "_TRIED = 1",
        _REFUSED,
    ),
    Fault(
        "search: beyond 256 validation examples the first ones are scored again",
        "private/scoring.py",
        "places = torch.arange(start, end, device=self.place)",
        "places = torch.arange(start, end, device=self.place) % _AT_A_TIME",
        _SCORES,
    ),
    Fault(
        "search: validation examples leave their trace in the released model",
        "private/scoring.py",
        "copy.deepcopy(model).to(self.place).float()",
        "copy.copy(model).to(self.place).float()",
        _SCORES,
    ),
    Fault(
        "a statement does not say that seeded noise protects nobody",
        "privacy/promise.py",
        "whoever knows the seed knows the noise. For public data only.",
        "whoever knows the seed knows the noise.",
        P + "test_promise.py",
    ),
]

_BOOKS = of_kind(
    "books",
    Fault(
        "after an earlier release one run of several is priced",
        "accounting/search.py",
        "Counter({(self.sampling, noise_multiplier): self.runs * self.steps})",
        "Counter({(self.sampling, noise_multiplier): self.steps})",
        "tests/accounting/test_search.py",
    ),
    Fault(
        "drop-in: the noise is that of a delta of 1e-6 at least",
        "opacus/private_engine.py",
        "target_delta=target_delta,\n                sample_rate",
        "target_delta=max(target_delta, 1e-6),\n                sample_rate",
        "tests/opacus/test_opacus_budgets.py",
    ),
    Fault(
        "a job trains on more examples than its noise was priced for",
        "training/job.py",
        "if len(arrays.train_inputs) != cohort.examples:",
        "if len(arrays.train_inputs) < cohort.examples:",
        T + "test_job.py",
    ),
    Fault(
        "a run of several may clip without a threshold",
        "training/loop.py",
        "if clips and state.threshold.isnan().any():",
        "if clips and state.threshold.isnan().all():",
        T + "test_refused_runs.py",
    ),
)

_READ = [
    Fault(
        "training inputs need not be finite",
        "data/arrays.py",
        "if not np.isfinite(inputs).all():",
        'if part == "test" and not np.isfinite(inputs).all():',
        DATA + "test_arrays.py",
    ),
    Fault(
        "the part of AG News is prepared in one way and said to be in another",
        "data/ag_news_partial.py",
        "return ag_news.build(data_dir, cache, words, unknown_words, SOURCE)",
        'return ag_news.build(data_dir, cache, words, "zeros", SOURCE)',
        DATA + "test_ag_news.py",
    ).of("second plan"),
    Fault(
        "audit: an answer that is no number is taken for one that gives nothing away",
        "audit/experiments.py",
        "if not np.isfinite(score.values).all():",
        "if not np.isfinite(score.values).any():",
        "tests/audit/test_findings.py",
    ),
    Fault(
        "a run may be evaluated after it diverged",
        "results/evaluated.py",
        "for row in np.flatnonzero(at > ends)[:1]:",
        "for row in np.flatnonzero(finished & (at > ends))[:1]:",
        RESULTS + "test_evaluated.py",
    ).of("reported"),
    Fault(
        "a row that comes again right behind itself is counted twice",
        "results/evaluated.py",
        "if (np.diff(keys) > 0).all():",
        "if (np.diff(keys) >= 0).all():",
        RESULTS + "test_evaluated.py",
    ).of("reported"),
    Fault(
        "the metric of the first run is held against its data set, no other's",
        "results/evaluated.py",
        "pd.unique(numbers.run * len(numbers.metrics) + numbers.metric)",
        "pd.unique(numbers.run * len(numbers.metrics) + numbers.metric)[:1]",
        RESULTS + "test_evaluated.py",
    ).of("reported"),
]

OVERLOOKED_FLOOR = [*_LAYERS, *_OWN, *_BOOKS, *_READ]
