"""What pyproject.toml cannot say: the notebooks of the lessons travel inside the package, as tinytorch/_lessons, and the
weights of the tiny model in tinytorch/models."""
from setuptools import find_namespace_packages, setup

setup(
    packages=[*find_namespace_packages(include=["tinytorch*"]), "tinytorch._lessons"],
    package_dir={"tinytorch._lessons": "modules/source"},
    package_data={"tinytorch.models": ["tiny.safetensors"], "tinytorch._lessons": ["[0-8]*/*.ipynb"]},
)
