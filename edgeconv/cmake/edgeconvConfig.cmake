# find_package(edgeconv): trained models as libraries that CMake builds.
#
#   cmake -S . -B build -Dedgeconv_DIR=$(edgeconv cmake-dir)
#
#   edgeconv_add_model(TARGET
#     MODEL PATH TO RECIPE | ARTIFACT FILE
#     [CALIBRATION SOURCE...] [PREPROCESS STEPS] [CONVERT_OPTIONS OPTION...]
#     [SYMBOL NAME] [DATA SOURCE] [VECTORS COUNT] [LABELS FILE] [OPTIONS NAME=VALUE...]
#     [SELF_TEST])
#
# adds the static library TARGET, also called TARGET::TARGET. MODEL is converted to one RECIPE, as `edgeconv convert` does;
# ARTIFACT is a .tflite that was converted before, with its manifest. Both are done again when the
# model, the samples or the labels change, and only then. Paths are relative to the directory of
# the CMakeLists.txt. SYMBOL, by default the name of the target, begins all names in the code;
# include "SYMBOL.h". SELF_TEST adds TARGET_self_test_lib with the golden vectors,
# TARGET_litert, a library with the class SYMBOL_litert, and the program TARGET_self_test, which
# ctest runs.
#
# edgeconv::LiteRt is the library of LiteRT that edgeconv itself runs models with.

cmake_minimum_required(VERSION 3.20)

if(NOT EDGECONV_COMMAND)
  find_program(EDGECONV_EXECUTABLE edgeconv DOC "The program edgeconv")
  if(NOT EDGECONV_EXECUTABLE)
    set(edgeconv_FOUND FALSE)
    set(edgeconv_NOT_FOUND_MESSAGE
        "the program edgeconv is not on the PATH; set EDGECONV_EXECUTABLE to it")
    return()
  endif()
  set(EDGECONV_COMMAND "${EDGECONV_EXECUTABLE}")
endif()

function(_edgeconv_find_litert)
  if(TARGET edgeconv::LiteRt)
    return()
  endif()
  if(NOT EDGECONV_LITERT_LIBRARY)
    execute_process(
      COMMAND ${EDGECONV_COMMAND} cmake-dir --litert
      OUTPUT_VARIABLE found
      ERROR_VARIABLE why
      RESULT_VARIABLE failed
      OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(failed)
      message(FATAL_ERROR "edgeconv: LiteRT's library was not found: ${why}")
    endif()
    set(EDGECONV_LITERT_LIBRARY "${found}" CACHE FILEPATH "LiteRT's shared library")
  endif()
  add_library(edgeconv::LiteRt SHARED IMPORTED GLOBAL)
  set_target_properties(edgeconv::LiteRt PROPERTIES IMPORTED_LOCATION "${EDGECONV_LITERT_LIBRARY}")
endfunction()

function(edgeconv_add_model target)
  set(flags SELF_TEST)
  set(values MODEL TO ARTIFACT PREPROCESS SYMBOL DATA VECTORS LABELS)
  set(lists CALIBRATION CONVERT_OPTIONS OPTIONS)
  cmake_parse_arguments(PARSE_ARGV 1 arg "${flags}" "${values}" "${lists}")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "edgeconv_add_model(${target}): unknown: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(arg_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR
            "edgeconv_add_model(${target}): without a value: ${arg_KEYWORDS_MISSING_VALUES}")
  endif()
  if(arg_MODEL AND arg_ARTIFACT OR NOT arg_MODEL AND NOT arg_ARTIFACT)
    message(FATAL_ERROR "edgeconv_add_model(${target}): give MODEL and TO, or ARTIFACT")
  endif()
  if(arg_MODEL AND NOT arg_TO)
    message(FATAL_ERROR "edgeconv_add_model(${target}): MODEL without TO, the recipe")
  endif()
  if(NOT arg_SYMBOL)
    string(MAKE_C_IDENTIFIER "${target}" arg_SYMBOL)
  endif()

  set(place "${CMAKE_CURRENT_BINARY_DIR}/${target}.edgeconv")
  set(code "${place}/code")
  set(stamp "${place}/stamp")
  set(depfile "${place}/stamp.d")
  file(MAKE_DIRECTORY "${code}")

  set(convert)
  if(arg_MODEL)
    get_filename_component(source "${arg_MODEL}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
    # What is in a directory of artifacts is one model, and one only.
    string(SHA256 mark "${source}")
    string(SUBSTRING "${mark}" 0 12 mark)
    set(artifact "${place}/${arg_TO}-${mark}")
    set(options)
    foreach(calibration IN LISTS arg_CALIBRATION)
      list(APPEND options --calibration "${calibration}")
    endforeach()
    if(arg_PREPROCESS)
      list(APPEND options --preprocess "${arg_PREPROCESS}")
    endif()
    set(convert COMMAND ${EDGECONV_COMMAND} convert "${source}" --to "${arg_TO}" -o "${artifact}"
                --quiet ${options} ${arg_CONVERT_OPTIONS} > "${place}/convert.txt")
    set(what "${arg_MODEL} to ${arg_TO}")
  else()
    get_filename_component(artifact "${arg_ARTIFACT}" ABSOLUTE
                           BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
    set(source "${artifact}")
    set(what "${arg_ARTIFACT}")
  endif()

  set(options)
  foreach(name IN ITEMS DATA VECTORS LABELS)
    if(arg_${name})
      string(TOLOWER "--${name}" option)
      list(APPEND options ${option} "${arg_${name}}")
    endif()
  endforeach()
  foreach(option IN LISTS arg_OPTIONS)
    list(APPEND options --option "${option}")
  endforeach()

  set(sources "${code}/${arg_SYMBOL}.c" "${code}/${arg_SYMBOL}_interface.c"
              "${code}/${arg_SYMBOL}_model.c")
  set(test_sources "${code}/${arg_SYMBOL}_golden.c" "${code}/${arg_SYMBOL}_self_test.c")
  set(runner "${code}/${arg_SYMBOL}_litert.cpp")
  set(program "${code}/${arg_SYMBOL}_self_test_main.cpp")
  set(headers "${code}/${arg_SYMBOL}.h" "${code}/${arg_SYMBOL}_interface.h"
              "${code}/${arg_SYMBOL}_self_test.h" "${code}/${arg_SYMBOL}_litert.hpp")
  # What has not changed is not written again, so the stamp is what is newer than its sources.
  add_custom_command(
    OUTPUT "${stamp}"
    BYPRODUCTS ${sources} ${test_sources} ${runner} ${program} ${headers}
    ${convert}
    COMMAND ${EDGECONV_COMMAND} embed "${artifact}" --target cmake -o "${code}" --quiet
            --symbol "${arg_SYMBOL}" --depfile "${depfile}" --depfile-target "${stamp}" ${options}
    COMMAND "${CMAKE_COMMAND}" -E touch "${stamp}"
    DEPENDS "${source}"
    DEPFILE "${depfile}"
    WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
    COMMENT "edgeconv: ${what} for ${target}"
    VERBATIM)

  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if(NOT C IN_LIST languages)
    set_source_files_properties(${sources} ${test_sources} PROPERTIES LANGUAGE CXX)
  endif()
  add_library(${target} STATIC ${sources} "${stamp}")
  add_library(${target}::${target} ALIAS ${target})
  target_include_directories(${target} PUBLIC "$<BUILD_INTERFACE:${code}>")
  set_target_properties(${target} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON
                                             POSITION_INDEPENDENT_CODE ON)
  if(NOT arg_SELF_TEST)
    return()
  endif()

  add_library(${target}_self_test_lib STATIC ${test_sources})
  target_link_libraries(${target}_self_test_lib PUBLIC ${target})
  add_dependencies(${target}_self_test_lib ${target})
  set_target_properties(${target}_self_test_lib PROPERTIES
                        C_STANDARD 11 C_STANDARD_REQUIRED ON POSITION_INDEPENDENT_CODE ON)

  _edgeconv_find_litert()
  add_library(${target}_litert STATIC "${runner}")
  target_link_libraries(${target}_litert PUBLIC ${target}_self_test_lib edgeconv::LiteRt)
  add_dependencies(${target}_litert ${target}_self_test_lib)
  add_executable(${target}_self_test "${program}")
  target_link_libraries(${target}_self_test PRIVATE ${target}_litert)
  add_test(NAME ${target}_self_test COMMAND ${target}_self_test)
endfunction()
