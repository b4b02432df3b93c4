"""The packages: the folders of the clone, installed below ``mezzotint`` (package-dir in pyproject.toml)."""

from setuptools import find_packages, setup

PARTS = ("backends", "conf", "sim", "traces")
OWN = find_packages("mezzotint", exclude=[name for part in PARTS for name in (part, f"{part}.*")])
FOLDERS = [name for part in PARTS for name in (part, *(f"{part}.{each}" for each in find_packages(part)))]

setup(packages=["mezzotint", *(f"mezzotint.{name}" for name in (*OWN, *FOLDERS))])
