"""A client of federated learning: multinomial logistic regression on this client's share of the digits."""

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports.karman_federated_types import Array, Description, Fitted, Judged
from wit_world.imports.karman_task_types import Error_Invalid, InvalidInput

from data import LABELS, PIXELS, Data, Invalid
from model import Model


class Learner(exports.Learner):
    def describe(self, setting):
        return Description(len(told(setting).train), None)

    def begin(self, setting, seed):
        return arrays(Model.zeros())

    def fit(self, setting, model, training, state):
        if training.wants_control:
            raise refused("strategy", "this client does not know SCAFFOLD's control variates")
        trained = read(model)
        samples = told(setting).train
        steps, loss = trained.train(
            samples, training.epochs, training.batch, training.learning_rate, training.seed,
            most_steps=training.most_steps, proximal=training.proximal,
        )
        return Fitted(arrays(trained), [], len(samples), steps, loss, [], b"")

    def evaluate(self, setting, model):
        held = told(setting).held
        correct, loss = read(model).judge(held)
        return Judged(len(held), correct, loss, [])


def told(setting):
    """The data that the setting means."""
    properties = dict(setting.properties)
    share = (setting.share.index, setting.share.count) if setting.share else None
    try:
        return Data.of(share, properties.get("alpha", "0.5"), properties.get("split", "0"))
    except Invalid as error:
        raise refused(error.field, error.message) from None


def read(model):
    if [(array.name, array.shape) for array in model] != [("weight", [LABELS, PIXELS]), ("bias", [LABELS])]:
        raise refused("model", f"its arrays are not `weight` {LABELS} by {PIXELS} and `bias` {LABELS}")
    weight, bias = (array.values for array in model)
    return Model([weight[row * PIXELS:(row + 1) * PIXELS] for row in range(LABELS)], list(bias))


def arrays(model):
    weight = [value for row in model.weight for value in row]
    return [Array("weight", [LABELS, PIXELS], weight), Array("bias", [LABELS], model.bias)]


def refused(field, message):
    return Err(Error_Invalid(InvalidInput(f"`{field}`: {message}", field)))
