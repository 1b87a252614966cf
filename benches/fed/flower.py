"""The same as `plain_loop.py` in Flower's simulation, Ray underneath.

    FED_TASK='{...}' python flower.py CPUS-PER-CLIENT
"""

import sys

from flwr.simulation import run_simulation

import flower_app

if __name__ == "__main__":
    run_simulation(
        flower_app.server_app,
        flower_app.client_app,
        num_supernodes=flower_app.COUNT,
        backend_config={"client_resources": {"num_cpus": float(sys.argv[1]), "num_gpus": 0.0}},
    )
