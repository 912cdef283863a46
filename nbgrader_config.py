"""nbgrader's configuration. Run nbgrader from this folder; the course lives in modules/."""
from pathlib import Path

c = get_config()  # noqa: F821 - nbgrader provides it

c.CourseDirectory.course_id = "tinytorch"
c.CourseDirectory.root = str(Path(__file__).resolve().parent / "modules")

# What a student finds where a solution stood.
c.ClearSolutions.code_stub = {"python": 'raise NotImplementedError("Write this exercise here.")'}
c.ClearSolutions.text_stub = "Write your answer here."

# Seconds for one cell. Both names are needed: some commands read the first, some the second.
c.ExecutePreprocessor.timeout = 120
c.Execute.timeout = 120
