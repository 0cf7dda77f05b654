"""The operators of ONNX that draw numbers: what they make is another thing at every run."""

BY_CHANCE = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
