"""Machines and packages that are not at hand, each named for what it stands for."""

from __future__ import annotations

from dataclasses import replace

from hexport.diagnosis.installed import Distribution, Installed
from hexport.diagnosis.libraries import Libraries, Library
from hexport.diagnosis.machine import Machine

LINUX_PC = Machine("linux", "x86_64", "x86_64", (3, 11, 7), glibc="2.36")
SNAPDRAGON_X = Machine("windows", "arm64", "arm64", (3, 13, 0))
SNAPDRAGON_X_EMULATED = replace(SNAPDRAGON_X, python_arch="x86_64", python=(3, 10, 0))
APPLE_SILICON = Machine("macos", "arm64", "arm64", (3, 12, 0))
APPLE_ROSETTA = replace(APPLE_SILICON, python_arch="x86_64")
BOARD = Machine("linux", "arm64", "arm64", (3, 12, 0), glibc="2.39")

SITE = "/env/site-packages"
HOST = Distribution("onnxruntime", "1.31.1", SITE)
PLUGIN = Distribution("onnxruntime-qnn", "2.7.0", SITE)
PAIR = Installed(PLUGIN, (HOST,), f"{SITE}/onnxruntime/__init__.py")
NO_LIBRARIES = Libraries()
BUNDLED = (Library(f"{SITE}/onnxruntime_qnn/libQnnSaver.so", "2.51.0"),)
