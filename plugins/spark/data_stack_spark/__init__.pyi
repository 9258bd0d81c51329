from data_stack_spark.converter import SparkDatasetConverter as SparkDatasetConverter
from data_stack_spark.converter import make_spark_converter as make_spark_converter
from data_stack_spark.converter import register_delete_dir_handler as register_delete_dir_handler
from data_stack_spark.engine import SparkEngine as SparkEngine
from data_stack_spark.materialize import materialize_dataset as materialize_dataset
from data_stack_spark.reading import dataset_as_rdd as dataset_as_rdd
from data_stack_spark.rows import encode_rows as encode_rows
from data_stack_spark.session import spark_session as spark_session
from data_stack_spark.types import spark_schema as spark_schema
from data_stack_spark.urls import local_path as local_path
from data_stack_spark.urls import readable_source as readable_source

__all__: list[str]
