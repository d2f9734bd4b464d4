from headrace.api.run import Run as Run
from headrace.api.run import load_run as load_run
from headrace.api.train import train as train
from headrace.wire.errors import HeadraceError as HeadraceError
