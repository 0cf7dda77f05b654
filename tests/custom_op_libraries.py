"""Libraries with operators of their own, built by the machine's C compiler, where it has one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

import small_models as small

DOMAIN = "test.hexport"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")

# ONNX Runtime's C interface is a table of functions that only grows; these are places in it.
TWICE = """
#include <stddef.h>
#include <stdint.h>

enum { MAKE_DOMAIN = 26, ADD_OP = 27, ADD_DOMAIN = 28, DATA = 51, RANK = 61, DIMS = 62, TYPE = 65,
       INPUT = 90, OUTPUT = 91, FREE_TYPE = 99, OLD = 8, FLOAT = 1 };

typedef struct { const void *const *(*api)(uint32_t version); const char *(*version)(void); } Base;
typedef struct Op Op;
struct Op {
    uint32_t version;
    void *(*create)(const Op *, const void *const *, const void *);
    const char *(*name)(const Op *);
    const char *(*provider)(const Op *);
    int (*input_type)(const Op *, size_t);
    size_t (*inputs)(const Op *);
    int (*output_type)(const Op *, size_t);
    size_t (*outputs)(const Op *);
    void (*compute)(void *, void *);
    void (*destroy)(void *);
    int (*input_kind)(const Op *, size_t);
    int (*output_kind)(const Op *, size_t);
};
static const void *const *ort;

static void *create(const Op *op, const void *const *api, const void *info) {
    (void)api; (void)info; return (void *)op;
}
static const char *name(const Op *op) { (void)op; return "Twice"; }
static const char *provider(const Op *op) { (void)op; return 0; }
static int type(const Op *op, size_t i) { (void)op; (void)i; return FLOAT; }
static int required(const Op *op, size_t i) { (void)op; (void)i; return 0; }
static size_t one(const Op *op) { (void)op; return 1; }
static void destroy(void *kernel) { (void)kernel; }

static void compute(void *kernel, void *context) {
    void *x, *y, *info, *source, *target;
    int64_t dims[8];
    size_t rank, count = 1;
    (void)kernel;
    ((void *(*)(void *, size_t, void **))ort[INPUT])(context, 0, &x);
    ((void *(*)(void *, void **))ort[TYPE])(x, &info);
    ((void *(*)(void *, size_t *))ort[RANK])(info, &rank);
    ((void *(*)(void *, int64_t *, size_t))ort[DIMS])(info, dims, rank);
    ((void (*)(void *))ort[FREE_TYPE])(info);
    ((void *(*)(void *, size_t, const int64_t *, size_t, void **))ort[OUTPUT])(context, 0, dims, rank, &y);
    ((void *(*)(void *, void **))ort[DATA])(x, &source);
    ((void *(*)(void *, void **))ort[DATA])(y, &target);
    for (size_t i = 0; i < rank; i++) count *= (size_t)dims[i];
    for (size_t i = 0; i < count; i++) ((float *)target)[i] = 2 * ((float *)source)[i];
}

static const Op twice = {OLD, create, name, provider, type, one, type, one, compute, destroy,
                         required, required};

void *RegisterCustomOps(void *options, const Base *base) {
    void *domain, *status;
    ort = base->api(OLD);
    status = ((void *(*)(const char *, void **))ort[MAKE_DOMAIN])("test.hexport", &domain);
    if (!status) status = ((void *(*)(void *, const Op *))ort[ADD_OP])(domain, &twice);
    if (!status) status = ((void *(*)(void *, void *))ort[ADD_DOMAIN])(options, domain);
    return status;
}
"""
NOTHING = "int hexport_nothing(void) { return 0; }\n"
CRASHING = "void *RegisterCustomOps(void *options, void *base) { (void)base; return *(void **)0; }\n"


def build(code: str, folder: Path, name: str) -> Path:
    """The shared library of ``code``."""
    assert COMPILER is not None
    source, library = folder / f"{name}.c", folder / f"lib{name}.so"
    source.write_text(code, encoding="utf-8")
    command = [COMPILER, "-shared", "-fPIC", "-O1", "-o", str(library), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return library


def with_twice() -> onnx.ModelProto:
    """x·w on the NPU, then an operator that only the library has."""
    weight = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)
    made = small.model(
        [
            helper.make_node("MatMul", ["x", "w"], ["m"], name="matmul"),
            helper.make_node("Twice", ["m"], ["y"], name="twice", domain=DOMAIN),
        ],
        [small.value("x", [4, 16])],
        [small.value("y", [4, 16])],
        [small.constant("w", weight)],
    )
    made.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return made


CAN_BUILD = COMPILER is not None and sys.platform == "linux"
