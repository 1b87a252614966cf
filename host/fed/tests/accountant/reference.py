"""Writes reference.csv: what dp-accounting (PyPI, 0.6.0) says of Poisson-subsampled Gaussian mechanisms.

pip install dp-accounting==0.6.0 && python reference.py > reference.csv

Only figures that mean something are kept, ε up to 20. Beyond, and at rates near one half, the best orders are small ones at which its
series does not converge; it leaves them out and says more than the truth.
"""

from absl import logging
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.rdp import RdpAccountant

logging.set_verbosity(logging.ERROR)
print("noise_multiplier,rate,rounds,delta,epsilon")
for noise_multiplier in (0.5, 0.7, 1.0, 1.5, 3.0, 10.0):
    for rate in (0.001, 0.01, 0.05, 0.1, 1.0):
        for rounds in (1, 10, 100, 1000, 10000):
            for delta in (1e-5, 1e-7):
                event = GaussianDpEvent(noise_multiplier)
                if rate < 1:
                    event = PoissonSampledDpEvent(rate, event)
                accountant = RdpAccountant()
                accountant.compose(event, rounds)
                epsilon = accountant.get_epsilon(delta)
                if epsilon <= 20:
                    print(f"{noise_multiplier},{rate},{rounds},{delta},{epsilon:.9g}")
