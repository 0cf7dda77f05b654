"""A real .pte of 3 KB, which only executorch can make and only its own tests have at hand.

Made by executorch 1.5.1 with torch 2.13: Linear(8, 4) on x[2,8], Relu, plus y[2,4]; and the sum of x as a
second output. Partitioned for XNNPACK, which takes all but the sum.
"""

from __future__ import annotations

import base64
import zlib

_PACKED = """
eNrVVl1oHFUUvrN/mWyGul0XWTSRdbUQS5CZ3dndyZKMRapUKYJQaCQtzfwtWVw3y2aWVuLPij4ELCXoSx5sLUElPpmATyEZ8qAi
tYiFUgQr9MGCqA++SjTjuTNndm62tSBEwRvOzv073/m952SCEPL0CalgzYpiDubLCeKPAf+zFPO/GTIMv1n4pohAeJjHYE53CPkK
6DsghQspAutT3i1Cbu24bhTnR4C0mlYZNzSrJMqiIVpyRTR1s1CWxEJJ0SypLJV1uVAwK6asVTTdqIhK0RLhrinJRUtRilQf+Q/X
jTCYhqQb5aJolcYLlmjWdK1mmNq4oZuSKSvjimFolVLNLBVkzVIks6TXilK5ZGk1pViTZN1UKOaJXdeleBwJRwztOA40iuufXNdN
4Xk3Ft7lwRsC3KDe6bIAvXPB26Dna1HcBJnBOZU77M0eAFmPkRysQo/HYJfALtgO1AB6H2gMmGSgCaBtcMhmzPd9ML5lsKkqF0B3
qoXgxdQfJuiANnMH4Geq2WxpxktPAVlNM+Rd/dN1eeQbAnq2aR+vz9tn5jo2GaRxta1mtTrfeRnl+T5K9vRPotwWEtVzLPDpro9N
t2+6fhyijO40LYXQ7xyPOcgjf5C2QZ7FEZ/1RQTvsfscpjr1I/XVMpCNMT+GWG+7Pd3iz6EO2V6sSGIbdD+CWBEEDWRQ/s9Dfu43
mF/HGFB1YyTWyym8M1BA+4OcGUI7Ax2+YXTIog5HYa/bl7trsOedx9MQs/s97/OYlGmMD2vHItyfuYcdPERwEHUJcNPk4B24GRY3
kfBin/gbXB5t5BkbN4HWgaalsdxC3n6lZeWrubzeqTfsenP+CbvTalj5sVzemGva1jmbHjY7jYa3NVtvmG2reWa+ZRlwMN3jpzf2
8AQb/RynX2Ok/gMu+CP+W9xXvf8Hdt/VWrNu2H3KTp/O38t13juszbXPam2T/Jdj6pgoPkxo91uKMpXZG7TeTj0vSgTrcs7LUwHe
Tgbf3rBXl2eA6yok9Cjn16AMfHnOfzd0/SvQq0xNzAJKCmsifS8ujqCv7E+fTIJ2oZwsI6fL2Lg//TPZqwHJvW3Pe/dxpuYG9XoG
DgSsu4tAE3i27fdEjs6vuHTOebwppnaz9Z3eO+r6PH5M0mB3AvutH6k0ahLgcExPZHHO9+FkGRwaKRZHQH9G+zC6bqj/l6g/x+hP
eSKMfJ4cgNzng/p+hw0prKh3s4FicXtqtF9PWbwMeiGwhK5SDBbP1OZgHcH/eYJ8TXuIghfbADPa6++x3hnbfwWQOYAWYL+LjKIs
wZMT9nDw2huCJ83HEhidojgX/4W3n3yr4Pww86Gz8+Ml5/CVdUd48z7n0s9t9cahU86F2cWt8tfXJuXVj9XqyHn19bWHHLvxiTry
zPrG8AcrW9euxp2dL5bU9uMR572hR9XBkcsT795ObuYzHzmHyO7WxsZnzu2TF52TL3bVm2fL6qRxWZ18p+r8cnFZffJ34gwtLDgr
Dz6iGt+/4Hy6uuJUDp5T/wLLsPCj
"""


def tiny_pte() -> bytes:
    return zlib.decompress(base64.b64decode(_PACKED))
