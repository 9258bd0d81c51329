"""CIFAR-100: small photographs of a hundred kinds of things."""

from __future__ import annotations

from data_stack_classics.planes import PlanesFactory

_CLASSES = """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish forest fox
girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom
oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road
rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank
telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm"""


class CIFAR100Factory(PlanesFactory, dataset="cifar100"):
    """Photographs of things in a hundred classes, 32 × 32 pixels in colour.

    Samples are ``(image, label, superclass)``: a uint8 array of shape ``(32, 32, 3)``, the position in ``class_names``, and the
    number of one of 20 groups of classes, in the alphabetical order of their names, from ``aquatic_mammals`` to ``vehicles_2``.
    """

    n_samples = {"train": 50_000, "test": 10_000}
    folder = "cifar-100-binary"
    files = {"train": ["train.bin"], "test": ["test.bin"]}
    columns, bytes_before = ("image", "label", "superclass"), ("superclass", "label")
    class_names = tuple(_CLASSES.split())
