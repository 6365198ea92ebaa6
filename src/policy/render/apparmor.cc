// Paths are those that a workload sees after the pivot. AppArmor denies everything that no rule allows; the explicit
// denials guard against rules that an administrator might add by mistake, and AppArmor logs them.
#include "policy/render.h"
#include "policy/render/container_terms.h"

namespace caisson::policy::render {

namespace {

constexpr char kReadAndRun[] = "mrix";
constexpr char kChange[] = "mrwlkix";
// The files that the native runtime creates.
constexpr char kMadeEtc[] = "/etc/{passwd,group,nsswitch.conf,resolv.conf,hosts,hostname}";

// A path in which every character stands for itself.
std::string Literal(const std::string& path) {
  std::string text;
  for (const char letter : path) {
    if (std::string_view("\"\\*?[]{}^@").find(letter) != std::string_view::npos) text += '\\';
    text += letter;
  }
  return text;
}

class Writer {
 public:
  void Line(const std::string& text) { text_ += "  " + text + ",\n"; }
  void Title(const std::string& text) { text_ += "\n  # " + text + "\n"; }
  // The path itself and, should it be a directory, all below it.
  void Tree(const std::string& path, const char* access, const char* prefix = "") {
    Line(prefix + ("\"" + Literal(path) + "{,/,/**}\" ") + access);
  }
  void Raw(const std::string& text) { text_ += text; }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

void WriteFiles(const Profile& profile, bool memory_files, Writer& out) {
  out.Title("Programs and libraries. On a merged /usr only the first is ever asked about.");
  out.Line("\"/\" r");
  for (const std::string& path : profile.system_paths) out.Tree(path, kReadAndRun);
  out.Title("Of /etc, what the sandbox makes and what the profile shows.");
  out.Line("/{etc,var,run,dev}/ r");
  out.Line(std::string(kMadeEtc) + " r");
  for (const std::string& path : profile.etc_paths) out.Tree(path, "r");
  out.Title("Devices, and the terminal of a session that has one.");
  for (const std::string& name : profile.devices) out.Line("/dev/" + name + " rw");
  out.Line("/dev/{tty,ptmx,pts/ptmx} rw");
  out.Line("/dev/pts/ r");
  out.Line("/dev/pts/[0-9]* rw");
  out.Title("The writable places.");
  for (const std::string& path : profile.writable_paths) out.Tree(path, kChange);
  out.Title(profile.workspace == Access::kReadOnly
                ? "The source under test."
                : "The source under test: changes go to the sandbox's own layer, or where the profile says.");
  out.Tree("/workspace", profile.workspace == Access::kReadOnly ? kReadAndRun : kChange);
  for (const ProfileMount& mount : profile.mounts)
    out.Tree(mount.target, mount.access == Access::kReadOnly ? kReadAndRun : kChange);
  out.Title("Shared memory has no place in the tree, which attach_disconnected shows below the root.");
  out.Line("/SYSV* rw");
  if (memory_files) out.Line("/memfd:* mrwix");
}

void WriteProc(const Profile& profile, Writer& out) {
  if (profile.proc.pids_only) {
    out.Title("Of /proc, processes only; nothing is written there.");
    out.Line("/proc/ r");
    out.Line("/proc/[0-9]*/ r");
    out.Line("/proc/[0-9]*/** r");
  } else {
    out.Title("/proc is read, never written, and not where the profile masks it.");
    out.Line("/proc/ r");
    out.Line("/proc/** r");
    for (const std::string& path : MaskedPaths(profile)) out.Tree(path, "mrwlkx", "audit deny ");
  }
  out.Line("audit deny /proc/sys/** wlk");
  out.Line("audit deny /sys/{,**} mrwlkx");
}

void WritePowers(const std::string& name, Writer& out) {
  out.Title("Sockets. Which addresses exist is the network namespace's to say: AppArmor 3 cannot tell loopback from");
  out.Raw("  # the rest.\n");
  for (const char* kind : {"unix", "inet stream", "inet dgram", "inet6 stream", "inet6 dgram", "netlink raw"})
    out.Line(std::string("network ") + kind);
  for (const char* kind : {"inet raw", "inet6 raw", "packet", "bluetooth", "vsock", "alg", "key"})
    out.Line(std::string("audit deny network ") + kind);
  out.Title("Powers.");
  for (const char* power : {"capability", "mount", "remount", "umount", "pivot_root", "ptrace (trace, tracedby)"})
    out.Line(std::string("audit deny ") + power);
  out.Line("ptrace (read, readby) peer=" + name);
  out.Line("signal (send, receive) peer=" + name);
  out.Line("signal (receive) peer=unconfined");
}

}  // namespace

Result<std::string> AppArmor(const Profile& profile) {
  CAISSON_TRY(const bool memory_files, CallIsAllowed(profile, "memfd_create", {}));
  const std::string name = "caisson-" + profile.name;
  Writer out;
  out.Raw("# The isolation profile " + profile.name + " for AppArmor 3.\n\nabi <abi/3.0>,\n\nprofile " + name +
          " flags=(attach_disconnected, mediate_deleted) {");
  WriteFiles(profile, memory_files, out);
  WriteProc(profile, out);
  WritePowers(name, out);
  out.Raw("}\n");
  return out.Take();
}

}  // namespace caisson::policy::render
