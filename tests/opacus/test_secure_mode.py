"""secure_mode: all random numbers are from the cryptographic generator, and noise hides its digits.

The package that Opacus needs for it is not there; a plain generator stands in for it.
"""

import warnings

import pytest
import torch
from tests.opacus.helpers import ENGINES, MODES, QUIET, examples, loader_of, network

from oso_dp.opacus import mechanism
from oso_dp.opacus.mechanism import Noise

pytestmark = [pytest.mark.filterwarnings(text) for text in QUIET]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ENGINES)
def test_every_sum_of_every_step_has_secure_noise_also_after_a_checkpoint(
    method, mode, monkeypatch
) -> None:
    drawn, real = [], mechanism._generate_noise

    def noted(deviation, reference, generator, secure_mode):
        drawn.append((generator, secure_mode))
        return real(deviation, reference, generator, secure_mode)

    monkeypatch.setattr(mechanism, "_generate_noise", noted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = ENGINES[method](accountant="rdp")
    engine.secure_mode, engine.secure_rng = True, torch.Generator()
    model = network()
    more = {"count_noise": 0.3} if method == "fixed_quantile" else {}
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        criterion=torch.nn.CrossEntropyLoss(),
        data_loader=loader_of(*examples()),
        noise_multiplier=1.0,
        max_grad_norm=0.5,
        grad_sample_mode=mode,
        **more,
    )
    model, optimizer, loader = made[0], made[1], made[-1]
    criterion = made[2] if len(made) == 4 else torch.nn.CrossEntropyLoss()
    for _ in range(2):
        optimizer.zero_grad()
        inputs, targets = examples(count=4)
        criterion(model(inputs), targets).backward()
        optimizer.step()
        assert loader.batch_sampler.generator is engine.secure_rng
        optimizer.load_state_dict(optimizer.state_dict())
    assert len(drawn) >= 2 * len(optimizer.params)
    assert all(one is engine.secure_rng and secure for one, secure in drawn)
    assert loader.batch_sampler.generator is engine.secure_rng


@pytest.mark.parametrize("secure", [True, False])
def test_noise_is_what_opacus_gives_with_and_without_it(secure) -> None:
    """Of several numbers each, or of one; and of the deviation that was asked for."""
    like = [torch.empty(100, 200), torch.empty(()), torch.empty(7)]
    mine = Noise(torch.Generator().manual_seed(3), secure)("a sum", 2.5, like)
    generator = torch.Generator().manual_seed(3)
    parts = [mechanism._generate_noise(2.5, one, generator, secure).flatten() for one in like]
    assert torch.equal(mine, torch.cat(parts))
    assert float(mine.std()) == pytest.approx(2.5, rel=0.03)
