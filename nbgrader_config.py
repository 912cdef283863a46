"""nbgrader's configuration. Run nbgrader from this folder; the course lives in modules/."""
import os
import sys
import sysconfig
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent
# nbgrader starts "alembic" by its bare name, so its folder must be found even if the environment is not activated.
os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
sys.path.insert(0, str(ROOT))  # this repository's package, installed or not

from tinytorch.grading import ONE_THREAD, configure  # noqa: E402

os.environ.update({**ONE_THREAD, **os.environ})  # for the kernel of `nbgrader validate`

# nbgrader puts a submission together before it adds it to the gradebook, and SQLAlchemy warns about that.
warnings.filterwarnings("ignore", "Object of type <Submitted")

c = get_config()  # noqa: F821 - nbgrader provides it

# What stands in place of solutions, the time limits, and the steps of grading: see modules/source/93_grading.
configure(c)
c.CourseDirectory.course_id = "tinytorch"
c.CourseDirectory.root = str(ROOT / "modules")
