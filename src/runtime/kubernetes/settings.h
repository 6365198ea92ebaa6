// The operator's settings of the runtime kubernetes, and how the API server is reached: a small file of our own, and
// the kubeconfig or the service account that every client of a cluster uses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace caisson::runtime::kubernetes {

inline constexpr char kSettingsFile[] = "/etc/caisson/kubernetes.yaml";
inline constexpr char kSettingsVariable[] = "CAISSON_KUBERNETES";  // names another file

// How a pod's network is known to reach nothing. kClosed: the pod has no interface but its loopback, which the agent
// checks. kPolicy: the operator vouches for a default-deny NetworkPolicy that the cluster's network plugin enforces.
enum class PodNetwork { kClosed, kPolicy };

struct Settings {
  std::string image;
  std::string pull_policy = "IfNotPresent";
  std::string kubeconfig, context;  // empty: as kubectl finds them, or the service account of this pod
  std::string name_space;           // empty: that of the context, or "default"
  std::string runtime_class;
  std::string seccomp_profile;  // a file below the kubelet's seccomp directory; empty: RuntimeDefault
  std::vector<std::pair<std::string, std::string>> node_selector;
  bool host_users = false;
  PodNetwork pod_network = PodNetwork::kClosed;
  int64_t start_seconds = 120;  // how long a pod may take to be scheduled, pull its image and start
};

Result<Settings> ReadSettings(std::string_view text, const std::string& file);
// From the file that the variable names, or the standard one. kUnsupported when there is none.
Result<Settings> FindSettings();

// Where the API server is and who we are to it. Certificates and keys are PEM.
struct Access {
  std::string host, port, path;  // path: in front of every request's, without a slash at its end
  std::string server_name;       // that its certificate must have; empty: `host`
  std::string authority, certificate, key;
  std::string token, token_file;  // the file is read anew for each request: tokens rotate
  std::string name_space;
};

// A kubeconfig whose paths are relative to `directory`. What would run a program, skip a check or act as another user
// is refused with the reason.
Result<Access> ReadKubeconfig(std::string_view text, const std::string& file, const std::string& context);
Result<Access> FindAccess(const Settings& settings);

}  // namespace caisson::runtime::kubernetes
