"""Pack a commit into one archive, for a repository that assigns DOIs.

    make artifact          # build/artifact/oso-dp-0.1.0-1a2b3c4d5e6f.zip

The archive has every file of the commit, their checksums (SHA256SUMS, for `sha256sum --check`) and
metadata (ro-crate-metadata.json, RO-Crate 1.1). A commit always gives the same bytes.
"""

import hashlib
import json
import mimetypes
import re
import subprocess
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

REPO = Path(__file__).resolve().parents[1]
CRATE = "ro-crate-metadata.json"
CONTEXT = "https://w3id.org/ro/crate/1.1/context"
CONFORMS = "https://w3id.org/ro/crate/1.1"
PARTS = {
    "results/": "Every run and every evaluation, as Parquet, with provenance in each row",
    "reports/": "Tables, figures and the page, made from results/ by `make report`",
    "src/oso_dp/": "The Python package",
    "workflow/": "The study's rules, profiles and container recipe",
    "config/": "The studies",
    "tests/": "The tests",
    "docs/": "The documentation",
}


def git(*arguments: str) -> str:
    """Output of a git command in this repository."""
    command = ["git", "-C", str(REPO), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def files() -> dict[str, bytes]:
    """Contents of the commit's files, by path."""
    names = git("ls-tree", "-r", "-z", "--name-only", "HEAD").split("\0")
    return {name: (REPO / name).read_bytes() for name in sorted(filter(None, names))}


def checksums(contents: dict[str, bytes]) -> str:
    """Checksums in the format of `sha256sum`."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    return "".join(f"{digest}  {name}\n" for name, digest in digests.items())


def metadata(contents: dict[str, bytes], commit: str, when: datetime) -> dict[str, Any]:
    """RO-Crate metadata: the data set, the reproduced paper, the main folders and every file."""
    cited = yaml.safe_load(contents["CITATION.cff"])
    paper = cited["preferred-citation"]
    doi = f"https://doi.org/{paper['doi']}"
    parts = [{"@id": name} for name in (*PARTS, "Snakefile")]
    entities: list[dict[str, Any]] = [
        {
            "@id": CRATE,
            "@type": "CreativeWork",
            "conformsTo": {"@id": CONFORMS},
            "about": {"@id": "./"},
        },
        {
            "@id": "./",
            "@type": "Dataset",
            "name": cited["title"],
            "description": "An independent reproduction of a paper on differentially private "
            "learning: package, study, results with their provenance, and report.",
            "datePublished": when.date().isoformat(),
            "license": {"@id": "LICENSE"},
            "version": f"{cited['version']}, commit {commit}",
            "author": [{"@id": "#authors"}],
            "citation": {"@id": doi},
            "mainEntity": {"@id": "Snakefile"},
            "hasPart": [*parts, *({"@id": name} for name in contents if name != "Snakefile")],
        },
        {"@id": "#authors", "@type": "Organization", "name": cited["authors"][0]["name"]},
        {
            "@id": doi,
            "@type": "ScholarlyArticle",
            "name": paper["title"],
            "author": [
                {"@type": "Person", "name": f"{one['given-names']} {one['family-names']}"}
                for one in paper["authors"]
            ],
        },
        *(
            {"@id": name, "@type": "Dataset", "name": name, "description": text}
            for name, text in PARTS.items()
        ),
    ]
    return {
        "@context": CONTEXT,
        "@graph": entities + [_file(name, content) for name, content in contents.items()],
    }


def _file(name: str, content: bytes) -> dict[str, Any]:
    kind = mimetypes.guess_type(name)[0]
    workflow = name == "Snakefile"
    return {
        "@id": name,
        "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow"] if workflow else "File",
        "name": name,
        "contentSize": str(len(content)),
        "sha256": hashlib.sha256(content).hexdigest(),
        **({"encodingFormat": kind} if kind else {}),
    }


def write(folder: Path) -> Path:
    """Write the archive of HEAD; SystemExit if the checkout has uncommitted changes."""
    if git("status", "--porcelain"):
        sys.exit("artifact: the checkout has uncommitted changes; commit them first")
    commit, seconds = git("log", "-1", "--format=%H %ct").split()
    when = datetime.fromtimestamp(int(seconds), UTC)
    contents = files()
    described = json.dumps(metadata(contents, commit, when), indent=2, ensure_ascii=False)
    contents[CRATE] = f"{described}\n".encode()
    contents["SHA256SUMS"] = checksums(contents).encode()
    version = re.search(r"^version: (\S+)$", contents["CITATION.cff"].decode(), flags=re.M)
    assert version is not None
    root = f"oso-dp-{version[1]}-{commit[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{root}.zip"
    temporary = path.with_suffix(".tmp")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in sorted(contents.items()):
            entry = zipfile.ZipInfo(f"{root}/{name}", when.timetuple()[:6])
            executable = (REPO / name).exists() and (REPO / name).stat().st_mode & 0o100
            entry.external_attr = (0o755 if executable else 0o644) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    temporary.replace(path)
    return path


if __name__ == "__main__":
    made = write(REPO / "build" / "artifact")
    print(f"{made.relative_to(REPO)}: {made.stat().st_size / 2**20:.1f} MiB")
