"""The web client: GET requests with deadlines, checked redirects, bounded answers and retries.

It is built on the package ``requests``, and sends by the connections below it (urllib3) where the
user gives no session. ``requests`` is not made for untrusted servers. Used plainly,
``requests`` waits without end for a header that is sent one byte at a time, reads the body of a
redirect whole, sends cookies and the passwords of ``~/.netrc`` to other hosts, and shows the
password of a URL in errors.

So each read of a socket waits only as long as the request has time left, and each redirect is
checked before it is followed. Proxies and certificate authorities (``REQUESTS_CA_BUNDLE``) come
from the environment. Certificates are always verified, unless the user gives a session with
``verify=False``.
"""

from data_stack.io.web.client import ask as ask
from data_stack.io.web.client import use_session as use_session
from data_stack.io.web.errors import WebError as WebError
from data_stack.io.web.exchange import Exchange as Exchange
from data_stack.io.web.file_version import FileVersion as FileVersion
from data_stack.io.web.json_api import JsonAnswer as JsonAnswer
from data_stack.io.web.json_api import ask_json as ask_json
from data_stack.io.web.limits import Limits as Limits
from data_stack.io.web.limits import web_timeout as web_timeout
from data_stack.io.web.links import follow as follow
from data_stack.io.web.links import is_web as is_web
from data_stack.io.web.ranges import ByteRange as ByteRange
from data_stack.io.web.retries import retrying as retrying
