from data_stack_ray.engine import RayEngine as RayEngine
from data_stack_ray.loader import RayLoader as RayLoader
from data_stack_ray.reading import from_data_stack as from_data_stack
from data_stack_ray.writing import write as write

__all__: list[str]
