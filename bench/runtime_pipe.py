"""The worker of the JSON + base64 pipe: one line in, the model run, one line out. See ``runtime.py``."""

from __future__ import annotations

import base64
import json
import sys

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
for line in sys.stdin:
    request = json.loads(line)
    data = np.frombuffer(base64.b64decode(request["data"]), request["dtype"]).reshape(request["shape"])
    (result,) = session.run(None, {request["name"]: data})
    reply = {
        "data": base64.b64encode(result.tobytes()).decode(),
        "dtype": result.dtype.str,
        "shape": result.shape,
    }
    print(json.dumps(reply), flush=True)
