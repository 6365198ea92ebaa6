// Result<T>: a value or an Error. Names follow std::expected, which the project's older compiler lacks.
//
//   Result<UniqueFd> fd = OpenSomething();
//   if (!fd) return std::move(fd).error();
//   Use(*fd);
//
// or, shorter, CAISSON_TRY(UniqueFd fd, OpenSomething());
#pragma once

#include <optional>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/error.h"

namespace caisson {

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  T& value() & {
    CAISSON_CHECK(has_value());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    CAISSON_CHECK(has_value());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    CAISSON_CHECK(has_value());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& {
    CAISSON_CHECK(!has_value());
    return *std::get_if<1>(&state_);
  }
  Error&& error() && {
    CAISSON_CHECK(!has_value());
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  std::variant<T, Error> state_;
};

// Success carries nothing.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  const Error& error() const& {
    CAISSON_CHECK(error_.has_value());
    return *error_;
  }
  Error&& error() && {
    CAISSON_CHECK(error_.has_value());
    return std::move(*error_);
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace caisson

#define CAISSON_TRY_JOIN_(a, b) a##b
#define CAISSON_TRY_NAME_(line) CAISSON_TRY_JOIN_(caisson_try_, line)
// CAISSON_TRY(T name, expression): declares `T name` from the Result, or returns its error.
#define CAISSON_TRY(declaration, expression)                                               \
  auto CAISSON_TRY_NAME_(__LINE__) = (expression);                                         \
  if (!CAISSON_TRY_NAME_(__LINE__)) return std::move(CAISSON_TRY_NAME_(__LINE__)).error(); \
  declaration = *std::move(CAISSON_TRY_NAME_(__LINE__))
// For a Status, or where the value is not needed.
#define CAISSON_TRY_VOID(expression)                                       \
  do {                                                                     \
    auto caisson_try_status = (expression);                                \
    if (!caisson_try_status) return std::move(caisson_try_status).error(); \
  } while (false)
