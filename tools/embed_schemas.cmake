# cmake "-DINPUTS=a;b" -DOUTPUT=file.cc -P embed_schemas.cmake
# Writes the source of src/service/http/schemas.h: the files, as bytes, because string literals have a length limit.
set(arrays "")
set(table "")
set(number 0)
foreach(input ${INPUTS})
  get_filename_component(name ${input} NAME)
  file(READ ${input} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "((0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,))" "\\1\n"
         bytes "${bytes}")
  string(APPEND arrays "constexpr unsigned char kText${number}[] = {\n${bytes}\n};\n")
  string(APPEND table "  if (name == \"${name}\") return {reinterpret_cast<const char*>(kText${number}), sizeof(kText${number})};\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUTPUT} "#include \"service/http/schemas.h\"

namespace caisson::service::http {
namespace {
${arrays}
}  // namespace

std::string_view FindSchema(std::string_view name) {
${table}  return {};
}

}  // namespace caisson::service::http
")
