// The extension module that caisson-zygote.py loads: forks supervisors from the interpreter, and turns the process that
// they fork for a workload back into a freshly started interpreter.
//
// Runs: zygote (Serve), PID 1 (Serves), the workload's process (Become). Only the last runs Python, behind all walls;
// between zygote and workload lie two clones that touch nothing of the interpreter.
#include <Python.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/channel.h"
#include "launcher/supervisor.h"
#include "linux/shown_arguments.h"
#include "sandbox/warm_interpreter.h"
#include "zygote/python_command.h"

namespace caisson::zygote {

namespace {

constexpr int kControl = 3;

std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  return variables;
}

// By `make`: PyUnicode_DecodeFSDefaultAndSize or PyBytes_FromStringAndSize.
PyObject* ListOf(const std::vector<std::string>& strings, PyObject* (*make)(const char*, Py_ssize_t)) {
  PyObject* list = PyList_New(0);
  for (const std::string& string : strings) {
    PyObject* item = make(string.data(), static_cast<Py_ssize_t>(string.size()));
    if (list == nullptr || item == nullptr || PyList_Append(list, item) != 0) return nullptr;
    Py_DECREF(item);
  }
  return list;
}

// False when something could not be written.
bool FlushStreams() {
  bool flushed = true;
  for (const char* name : {"stdout", "stderr"}) {
    PyObject* stream = PySys_GetObject(name);  // borrowed
    if (stream == nullptr || stream == Py_None) continue;
    PyObject* closed = PyObject_GetAttrString(stream, "closed");
    const bool is_closed = closed != nullptr && PyObject_IsTrue(closed) == 1;
    PyErr_Clear();
    if (is_closed || PyObject_CallMethod(stream, "flush", nullptr) != nullptr) continue;
    flushed = false;
    if (std::strcmp(name, "stdout") == 0) {
      PyErr_WriteUnraisable(stream);
    } else {
      PyErr_Clear();  // no stream to report it on
    }
  }
  return flushed;
}

void CallIfLoaded(const char* module_name, const char* function) {
  PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), module_name);  // borrowed
  if (module != nullptr && PyObject_CallMethod(module, function, nullptr) == nullptr) PyErr_WriteUnraisable(module);
}

// Takes the exception that ended the program, prints it as the interpreter would, and returns the exit code.
int TakeRaised() {
  if (PyErr_ExceptionMatches(PyExc_SystemExit) == 0) {
    PyErr_Print();
    return 1;
  }
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  PyObject* code = PyObject_GetAttrString(value, "code");
  if (code == nullptr || code == Py_None) return 0;
  if (PyLong_Check(code)) return static_cast<int>(PyLong_AsLong(code));
  PyObject* sink = PySys_GetObject("stderr");
  if (sink != nullptr && sink != Py_None) PyFile_WriteObject(code, sink, Py_PRINT_RAW);
  PySys_WriteStderr("\n");
  PyErr_Clear();
  return 1;
}

class RunningPython : public sandbox::WarmInterpreter {
 public:
  // Functions of caisson-zygote.py that run before and after a workload's own text.
  RunningPython(PyObject* begin, PyObject* forget)
      : begin_(begin), forget_(forget), started_with_(StartVariables(OwnEnvironment())) {
    ::stat("/proc/self/exe", &program_);
    shown_ = linux_sys::ShownArguments();
    for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, nullptr, &dispositions_[signal]);
  }

  bool Serves(const char* path, const sandbox::Command& command) const override {
    // The name matters, not only the file: under another name, as in a virtual environment, the interpreter finds other
    // modules.
    const std::string_view name = path;
    const std::string_view directory = name.substr(0, name.rfind('/') + 1);
    struct stat info {};
    if ((directory != "/usr/bin/" && directory != "/bin/") || ::stat(path, &info) != 0) return false;
    if (info.st_dev != program_.st_dev || info.st_ino != program_.st_ino) return false;
    if (StartVariables(command.env) != started_with_) return false;
    const PythonCommand asked = ReadPythonCommand(command.argv);
    if (asked.kind != PythonCommand::Kind::kFile) return asked.kind != PythonCommand::Kind::kNone;
    return ::fstatat(AT_FDCWD, Below(command.cwd, asked.target).c_str(), &info, 0) == 0 && S_ISREG(info.st_mode);
  }

  [[noreturn]] void Become(const sandbox::Command& command) const override {
    ::prctl(PR_SET_NAME, "python3", 0, 0, 0);
    ShowArguments(command.argv);
    for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &dispositions_[signal], nullptr);
    PyOS_AfterFork_Child();
    // The workload's frame is the outermost one, as in an interpreter that has just started.
    PyThreadState* thread = PyThreadState_Get();
    thread->cframe->current_frame = nullptr;
    thread->recursion_remaining = thread->recursion_limit;
    const PythonCommand asked = ReadPythonCommand(command.argv);
    PyObject* prepared = Call(begin_, command, asked);
    if (prepared == nullptr) {
      PyErr_Print();
      ::_exit(1);
    }
    ::_exit(End(Run(asked, prepared)));
  }

 private:
  static std::string Below(const std::string& directory, const std::string& path) {
    return path[0] == '/' ? path : directory + "/" + path;
  }

  // Truncated to the available room.
  void ShowArguments(const std::vector<std::string>& argv) const {
    if (shown_.empty()) return;
    std::memset(shown_.data(), 0, shown_.size());
    size_t used = 0;
    for (const std::string& argument : argv) {
      const size_t size = std::min(argument.size(), shown_.size() - 1 - used);
      std::memcpy(shown_.data() + used, argument.data(), size);
      used += size + 1;
      if (used >= shown_.size()) return;
    }
  }

  static PyObject* Call(PyObject* begin, const sandbox::Command& command, const PythonCommand& asked) {
    const char* const kinds[] = {"", "file", "module", "text"};
    ::clearenv();
    // Its strings are as long-lived as this process.
    for (const std::string& variable : command.env) ::putenv(const_cast<char*>(variable.c_str()));
    PyObject* argv = ListOf(command.argv, PyUnicode_DecodeFSDefaultAndSize);
    PyObject* environment = ListOf(command.env, PyBytes_FromStringAndSize);
    PyObject* arguments = ListOf(asked.arguments, PyUnicode_DecodeFSDefaultAndSize);
    PyObject* target = PyUnicode_DecodeFSDefault(asked.target.c_str());
    if (argv == nullptr || environment == nullptr || arguments == nullptr || target == nullptr) return nullptr;
    return PyObject_CallFunction(begin, "OOsOOiii", argv, environment, kinds[static_cast<int>(asked.kind)], target,
                                 arguments, asked.isolated ? 1 : 0, asked.no_bytecode ? 1 : 0,
                                 asked.no_site_packages ? 1 : 0);
  }

  // The workload's own text. What it raised, if anything, is set.
  static PyObject* Run(const PythonCommand& asked, PyObject* prepared) {
    PyObject* globals = PyModule_GetDict(PyImport_AddModule("__main__"));
    if (asked.kind == PythonCommand::Kind::kModule) {
      PyObject* runpy = PyImport_ImportModule("runpy");
      if (runpy == nullptr) return nullptr;
      return PyObject_CallMethod(runpy, "_run_module_as_main", "si", asked.target.c_str(), 1);
    }
    if (asked.kind == PythonCommand::Kind::kText) {
      PyCompilerFlags flags = {PyCF_IGNORE_COOKIE, PY_MINOR_VERSION};
      return PyRun_StringFlags(asked.target.c_str(), Py_file_input, globals, globals, &flags);
    }
    PyObject* path = PyUnicode_EncodeFSDefault(prepared);
    std::FILE* file = path == nullptr ? nullptr : std::fopen(PyBytes_AsString(path), "re");
    if (file == nullptr) return PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, prepared);
    return PyRun_FileExFlags(file, PyBytes_AsString(path), Py_file_input, globals, globals, 1, nullptr);
  }

  // Performs an interpreter's shutdown; returns the exit code.
  int End(PyObject* ran) const {
    const bool interrupted = ran == nullptr && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) != 0;
    int code = ran == nullptr ? TakeRaised() : 0;
    // Called from here, so that tracebacks show no frame of ours.
    CallIfLoaded("threading", "_shutdown");
    CallIfLoaded("atexit", "_run_exitfuncs");
    const bool flushed = FlushStreams();
    if (PyObject_CallNoArgs(forget_) == nullptr) PyErr_Clear();
    if (!flushed || !FlushStreams()) code = 120;
    if (interrupted) {
      ::signal(SIGINT, SIG_DFL);
      ::kill(::getpid(), SIGINT);
    }
    return code & 0xff;
  }

  PyObject* const begin_;
  PyObject* const forget_;
  const std::vector<std::string> started_with_;
  struct stat program_ {};
  std::span<char> shown_;  // where the kernel finds our command line
  struct sigaction dispositions_[NSIG] = {};
};

// The new process is the launcher's child, as all supervisors are, so that they end together.
pid_t ForkSibling() {
  return static_cast<pid_t>(::syscall(SYS_clone, CLONE_PARENT | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
}

// serve(begin, forget): returns to Python only when the launcher closes the connection.
PyObject* Serve(PyObject*, PyObject* functions) {
  PyObject *begin = nullptr, *forget = nullptr;
  if (PyArg_ParseTuple(functions, "OO", &begin, &forget) == 0) return nullptr;
  const RunningPython python(begin, forget);
  const pid_t launcher = ::getppid();
  // SECURITY: this process runs from a read-only mount in its own mount namespace; supervisors mount, in the launcher's
  // namespace, the trees that clients of the launcher opened.
  const std::string launchers = "/proc/" + std::to_string(launcher) + "/ns/mnt";
  const UniqueFd mounts(::geteuid() == 0 ? ::open(launchers.c_str(), O_RDONLY | O_CLOEXEC) : -1);
  for (;;) {
    Result<UniqueFd> control_socket = launcher::TakeControlSocket(kControl);
    if (!control_socket) ::_exit(0);
    const pid_t member = ForkSibling();
    if (member == 0) {
      if (mounts && ::setns(mounts.get(), CLONE_NEWNS) != 0) ::_exit(1);
      launcher::ServeParked(launcher::ForgetLauncher(launcher, *std::move(control_socket), "caisson-parked"), &python);
      ::_exit(0);
    }
    if (member < 0) std::fprintf(stderr, "caisson-launcher: the interpreter cannot fork: %s\n", std::strerror(errno));
  }
}

// flags(template, {name: value}): a sys.flags with some of its fields changed, which Python itself cannot make.
PyObject* Flags(PyObject*, PyObject* arguments) {
  PyObject *flags = nullptr, *values = nullptr;
  if (PyArg_ParseTuple(arguments, "OO!", &flags, &PyList_Type, &values) == 0) return nullptr;
  PyObject* changed = PyStructSequence_New(Py_TYPE(flags));
  for (Py_ssize_t i = 0; changed != nullptr && i < PyList_Size(values); ++i) {
    PyObject* value = PyList_GetItem(values, i);
    Py_INCREF(value);
    PyStructSequence_SetItem(changed, i, value);
  }
  return changed;
}

// real_directory(file): where the file is, links resolved, or would be.
PyObject* RealDirectory(PyObject*, PyObject* file) {
  PyObject* bytes = PyUnicode_EncodeFSDefault(file);
  if (bytes == nullptr) return nullptr;
  char real[PATH_MAX];
  const char* const given = PyBytes_AsString(bytes);
  const std::string_view path = ::realpath(given, real) != nullptr ? real : given;
  const std::string_view directory = path.substr(0, std::max<size_t>(path.rfind('/'), 1));
  PyObject* found = PyUnicode_DecodeFSDefaultAndSize(directory.data(), static_cast<Py_ssize_t>(directory.size()));
  Py_DECREF(bytes);
  return found;
}

PyMethodDef kFunctions[] = {{"serve", Serve, METH_VARARGS, nullptr},
                            {"flags", Flags, METH_VARARGS, nullptr},
                            {"real_directory", RealDirectory, METH_O, nullptr},
                            {nullptr, nullptr, 0, nullptr}};
PyModuleDef kModule = {
    PyModuleDef_HEAD_INIT, "caisson_zygote", nullptr, -1, kFunctions, nullptr, nullptr, nullptr, nullptr};

}  // namespace

}  // namespace caisson::zygote

PyMODINIT_FUNC PyInit_caisson_zygote() { return PyModule_Create(&caisson::zygote::kModule); }
