# PowerShell completion for PROGRAM. For one shell:
#   PROGRAM completion powershell | Out-String | Invoke-Expression
# for all, write that line to the file $PROFILE
Register-ArgumentCompleter -Native -CommandName 'PROGRAM', 'PROGRAM.exe' -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $elements = @($commandAst.CommandElements | Where-Object { $_.Extent.StartOffset -lt $cursorPosition } | ForEach-Object { "$_" })
    $program = $elements[0]
    $words = @($elements | Select-Object -Skip 1)
    $count = $words.Count
    if ($wordToComplete -eq '') { $count++ }
    $lines = @(& $program __complete $count @words 2>$null)
    if ($lines[0] -ne 'words') { return }
    $lines | Select-Object -Skip 1 | ForEach-Object {
        $word, $meaning = $_ -split "`t", 2
        if (-not $meaning) { $meaning = $word }
        [System.Management.Automation.CompletionResult]::new($word, $word, 'ParameterValue', $meaning)
    }
}
