"""Private training on MNIST with Opacus, in ghost mode.

    python SCRIPT DATA --epsilon 3 --threshold 0.1 --rate 0.5

DATA: folder with the four MNIST files (train-images-idx3-ubyte.gz and so on).
"""

import argparse
import csv
import gzip
import sys
from pathlib import Path

import numpy as np
import torch
from oso_dp.opacus import OnlinePrivacyEngine as PrivacyEngine
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

DELTA = 1e-5


def read(folder: Path, part: str) -> TensorDataset:
    arrays = []
    for kind, head in (("images-idx3", 16), ("labels-idx1", 8)):
        path = folder / f"{part}-{kind}-ubyte.gz"
        if not path.is_file():
            sys.exit(f"{path}: not found; the data folder must contain the four files of MNIST")
        with gzip.open(path) as file:
            arrays.append(torch.from_numpy(np.frombuffer(file.read(), np.uint8)[head:].copy()))
    return TensorDataset(arrays[0].view(-1, 1, 28, 28).float() / 255, arrays[1].long())


def network() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 8, stride=2, padding=3), nn.ReLU(), nn.MaxPool2d(2, stride=1)),
        *(nn.Conv2d(16, 32, 4, stride=2), nn.ReLU(), nn.MaxPool2d(2, stride=1), nn.Flatten()),
        *(nn.Linear(32 * 4 * 4, 32), nn.ReLU(), nn.Linear(32, 10)),
    )


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset, device: str) -> float:
    model.eval()
    right = 0
    for inputs, targets in DataLoader(data, batch_size=1000):
        outputs: Tensor = model(inputs.to(device))
        right += int((outputs.argmax(dim=1).cpu() == targets).sum())
    model.train()
    return right / len(data)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Private training on MNIST.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--threshold", type=float, default=0.1, help="C, or where it starts")
    parser.add_argument("--rate", type=float, default=0.5, help="learning rate, or where it starts")
    parser.add_argument("--log", type=Path, help="a CSV file: step, threshold, accuracy")
    given = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train, test = read(given.data, "train"), read(given.data, "t10k")

    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=given.rate, momentum=0.9)
    engine = PrivacyEngine()
    model, optimizer, criterion, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=optimizer,
        criterion=nn.CrossEntropyLoss(),
        data_loader=DataLoader(train, batch_size=given.batch_size),
        target_epsilon=given.epsilon,
        target_delta=DELTA,
        epochs=given.epochs,
        max_grad_norm=given.threshold,
        grad_sample_mode="ghost",
    )
    rows: list[list[object]] = [["step", "threshold", "accuracy"]]
    for epoch in range(given.epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            criterion(model(inputs.to(device)), targets.to(device)).backward()
            optimizer.step()
            rows.append([len(rows), optimizer.max_grad_norm, ""])
        rows[-1][2] = score = accuracy(model, test, device)
        spent, threshold = engine.get_epsilon(DELTA), optimizer.max_grad_norm
        print(f"epoch {epoch + 1}: accuracy {score:.4f}, epsilon {spent:.2f}, C {threshold:.4g}")
    if given.log:
        with given.log.open("w", newline="") as file:
            csv.writer(file).writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
