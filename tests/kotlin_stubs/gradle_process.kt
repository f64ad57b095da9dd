package org.gradle.process

import java.io.File
import org.gradle.api.Action
import org.gradle.api.provider.Provider

public interface ExecSpec {
    public var workingDir: File
    public var commandLine: List<String>
}

public interface ExecOperations {
    public fun exec(action: Action<in ExecSpec>): Any
}

public interface StandardContent {
    public val asText: Provider<String>
}

public interface ExecOutput {
    public val standardOutput: StandardContent
}
