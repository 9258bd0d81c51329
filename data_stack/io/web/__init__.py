"""The web client: GET requests with deadlines, checked redirects, bounded answers and retries.

Plain requests never times out a header that is sent one byte at a time, reads the body of a
redirect whole, sends cookies or passwords of netrc to other hosts, and shows the password of a URL
in errors. So here each read of a socket waits only for the time that the request has left, and
redirects are followed explicitly. Proxies come from the environment, and so do the authorities of
TLS (``REQUESTS_CA_BUNDLE``). Certificates are always verified, unless a session of the user says
otherwise.
"""

from data_stack.io.web.client import ask as ask
from data_stack.io.web.client import use_session as use_session
from data_stack.io.web.errors import WebError as WebError
from data_stack.io.web.exchange import Exchange as Exchange
from data_stack.io.web.json_api import JsonAnswer as JsonAnswer
from data_stack.io.web.json_api import ask_json as ask_json
from data_stack.io.web.limits import Limits as Limits
from data_stack.io.web.limits import web_timeout as web_timeout
from data_stack.io.web.links import follow as follow
from data_stack.io.web.links import is_web as is_web
from data_stack.io.web.ranges import ByteRange as ByteRange
from data_stack.io.web.ranges import FileVersion as FileVersion
from data_stack.io.web.retries import retrying as retrying
